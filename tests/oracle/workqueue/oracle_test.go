// The oracle runs scripts on client-go's work queue and on controller-runtime's priority queue, in virtual time:
// one JSON script per line of stdin, the keys that were handed out per line of the file ANSWERS. It judges nothing.
//
// It is a test, because testing/synctest works in tests only.
package workqueue

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// Times and durations are nanoseconds, from the start of the script.
type operation struct {
	At       time.Duration `json:"at"`
	Op       string        `json:"op"`
	Key      string        `json:"key"`
	After    time.Duration `json:"after"`
	Priority int           `json:"priority"`
}

// A run of a key takes some time, then it ends with "done", "fail" (a retry with backoff) or "after" (a delayed add).
type run struct {
	For   time.Duration `json:"for"`
	Then  string        `json:"then"`
	After time.Duration `json:"after"`
}

type script struct {
	Queue   string           `json:"queue"`
	Workers int              `json:"workers"`
	Ops     []operation      `json:"ops"`
	Runs    map[string][]run `json:"runs"` // In order; the last one repeats.
	Until   time.Duration    `json:"until"`
}

type handOut struct {
	At       time.Duration `json:"at"`
	Key      string        `json:"key"`
	Priority int           `json:"priority"`
}

type answer struct {
	Taken   []handOut `json:"taken"`
	Adds    int       `json:"adds"`
	Retries int       `json:"retries"`
	Depth   int       `json:"depth"`
}

type counter struct {
	sync.Mutex
	value int
}

func (c *counter) move(by int)     { c.Lock(); defer c.Unlock(); c.value += by }
func (c *counter) Inc()            { c.move(1) }
func (c *counter) Dec()            { c.move(-1) }
func (c *counter) Set(float64)     {}
func (c *counter) Observe(float64) {}

type provider struct{ depth, adds, retries, others counter }

func (p *provider) NewDepthMetric(string) workqueue.GaugeMetric            { return &p.depth }
func (p *provider) NewAddsMetric(string) workqueue.CounterMetric           { return &p.adds }
func (p *provider) NewLatencyMetric(string) workqueue.HistogramMetric      { return &p.others }
func (p *provider) NewWorkDurationMetric(string) workqueue.HistogramMetric { return &p.others }
func (p *provider) NewRetriesMetric(string) workqueue.CounterMetric        { return &p.retries }
func (p *provider) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric {
	return &p.others
}
func (p *provider) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return &p.others
}

type queue struct {
	workqueue.TypedRateLimitingInterface[string]
	prioritized priorityqueue.PriorityQueue[string]
}

func (q queue) get() (string, int, bool) {
	if q.prioritized != nil {
		return q.prioritized.GetWithPriority()
	}
	key, shutdown := q.Get()
	return key, 0, shutdown
}

func (q queue) add(op operation, limited bool) {
	switch {
	case q.prioritized != nil:
		q.prioritized.AddWithOpts(priorityqueue.AddOpts{After: op.After, RateLimited: limited, Priority: &op.Priority}, op.Key)
	case limited:
		q.AddRateLimited(op.Key)
	case op.After > 0:
		q.AddAfter(op.Key, op.After)
	default:
		q.Add(op.Key)
	}
}

func newQueue(t *testing.T, kind string, metrics *provider) queue {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, 1000*time.Second)
	switch kind {
	case "client-go":
		return queue{workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "oracle", MetricsProvider: metrics}), nil}
	case "controller-runtime":
		made := priorityqueue.New("oracle", func(o *priorityqueue.Opts[string]) {
			o.RateLimiter, o.MetricProvider = limiter, metrics
		})
		return queue{made, made}
	}
	t.Fatalf("not a queue: %q", kind)
	panic("unreachable")
}

func play(t *testing.T, asked script) answer {
	metrics := &provider{}
	q := newQueue(t, asked.Queue, metrics)
	start := time.Now()
	var lock sync.Mutex
	found, counts := answer{Taken: []handOut{}}, map[string]int{}

	work := func() {
		for {
			key, priority, shutdown := q.get()
			if shutdown {
				return
			}
			lock.Lock()
			found.Taken = append(found.Taken, handOut{time.Since(start), key, priority})
			runs := asked.Runs[key]
			now := runs[min(counts[key], len(runs)-1)]
			counts[key]++
			lock.Unlock()
			time.Sleep(now.For)
			switch now.Then {
			case "fail":
				q.add(operation{Key: key, Priority: priority}, true)
			case "after":
				q.Forget(key)
				q.add(operation{Key: key, After: now.After, Priority: priority}, false)
			default:
				q.Forget(key)
			}
			q.Done(key)
		}
	}
	var workers sync.WaitGroup
	for range asked.Workers {
		workers.Go(work)
	}
	synctest.Wait()
	for _, op := range asked.Ops {
		time.Sleep(op.At - time.Since(start))
		switch op.Op {
		case "add":
			q.add(op, false)
		case "limited":
			q.add(op, true)
		case "forget":
			q.Forget(op.Key)
		default:
			t.Fatalf("not an operation: %q", op.Op)
		}
		synctest.Wait()
	}
	time.Sleep(asked.Until - time.Since(start))
	synctest.Wait()
	lock.Lock()
	found.Adds, found.Retries, found.Depth = metrics.adds.value, metrics.retries.value, metrics.depth.value
	answered := found
	lock.Unlock()
	// The runs that have begun go on to their ends, since no goroutine may be left. They are not counted.
	q.ShutDown()
	workers.Wait()
	return answered
}

func TestOracle(t *testing.T) {
	file, err := os.Create(os.Getenv("ANSWERS"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	in, out := json.NewDecoder(bufio.NewReaderSize(os.Stdin, 1<<20)), json.NewEncoder(file)
	for {
		var asked script
		if err := in.Decode(&asked); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		var found answer
		synctest.Test(t, func(t *testing.T) { found = play(t, asked) })
		if err := out.Encode(found); err != nil {
			t.Fatal(err)
		}
	}
}
