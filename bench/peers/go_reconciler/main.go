// A controller of controller-runtime that bench/reconcile_cost.py measures: it notes the last state of each ConfigMap and of the
// pods that it owns.
//
// One line of JSON in, one out: bench/peers/reconciler.py has the words.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	label   = "bench"
	owner   = "owner"
	written = "bench/written"
)

// state is the numbers of a ConfigMap and of the pods that it owns.
type state [2]int

type noted struct {
	state state
	at    time.Time
}

type reconciler struct {
	client.Client
	runs  atomic.Int64
	takes atomic.Int64 // Nanoseconds.
	write atomic.Bool

	mutex sync.Mutex
	seen  map[string]noted
}

func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	r.runs.Add(1)
	config := &corev1.ConfigMap{}
	if err := r.Get(ctx, request.NamespacedName, config); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	owned := &corev1.PodList{}
	if err := r.List(ctx, owned, client.InNamespace(config.Namespace), client.MatchingFields{owner: config.Name}); err != nil {
		return reconcile.Result{}, err
	}
	if takes := r.takes.Load(); takes > 0 {
		time.Sleep(time.Duration(takes))
	}
	found := state{numberOf(config), 0}
	for _, one := range owned.Items {
		found[1] += numberOf(&one)
	}
	if value := fmt.Sprintf("%d-%d", found[0], found[1]); r.write.Load() && config.Annotations[written] != value {
		base := client.MergeFrom(config.DeepCopy())
		if config.Annotations == nil {
			config.Annotations = map[string]string{}
		}
		config.Annotations[written] = value
		if err := r.Patch(ctx, config, base); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if before, known := r.seen[config.Name]; !known || before.state != found {
		r.seen[config.Name] = noted{found, time.Now()}
	}
	return reconcile.Result{}, nil
}

func numberOf(one client.Object) int {
	number, _ := strconv.Atoi(one.GetLabels()["n"])
	return number
}

// reached returns when the last of these states was noted; nothing while one is missing.
func (r *reconciler) reached(expected map[string]state) (time.Time, bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	last := time.Time{}
	for name, wanted := range expected {
		found, known := r.seen[name]
		if !known || found.state != wanted {
			return last, false
		}
		if found.at.After(last) {
			last = found.at
		}
	}
	return last, true
}

func (r *reconciler) start(ctx context.Context, limit int) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	config.QPS, config.Burst = -1, -1
	selected := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{label: "yes"})}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme.Scheme,
		Metrics: server.Options{BindAddress: "0"},
		Cache:   cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: selected, &corev1.Pod{}: selected}},
	})
	if err != nil {
		return err
	}
	r.Client = manager.GetClient()
	err = manager.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, owner, func(one client.Object) []string {
		if controller := metav1.GetControllerOf(one); controller != nil {
			return []string{controller.Name}
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(manager).For(&corev1.ConfigMap{}).Owns(&corev1.Pod{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: limit}).Complete(r)
	if err != nil {
		return err
	}
	go func() {
		if err := manager.Start(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}()
	return nil
}

type order struct {
	Do     string           `json:"do"`
	Limit  int              `json:"limit"`
	Takes  float64          `json:"takes"`
	Writes bool             `json:"writes"`
	States map[string]state `json:"states"`
	Pods   int              `json:"pods"`
	Round  string           `json:"round"`
}

func main() {
	ctrllog.SetLogger(logr.Discard())
	obey := (&reconciler{seen: map[string]noted{}}).obey
	if len(os.Args) > 1 && os.Args[1] == "pods" {
		obey = (&podReconciler{seen: map[types.NamespacedName]string{}}).obey
	}
	tell(map[string]any{"ready": true})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var told order
		if err := json.Unmarshal(lines.Bytes(), &told); err != nil {
			tell(map[string]any{"error": err.Error()})
			continue
		}
		tell(obey(told))
	}
}

func tell(what map[string]any) {
	line, _ := json.Marshal(what)
	os.Stdout.Write(append(line, '\n'))
}

func (r *reconciler) obey(told order) map[string]any {
	switch told.Do {
	case "start":
		if err := r.start(context.Background(), told.Limit); err != nil {
			return map[string]any{"error": err.Error()}
		}
	case "handle":
		r.takes.Store(int64(told.Takes * float64(time.Second)))
		r.write.Store(told.Writes)
	case "until":
		for {
			if at, reached := r.reached(told.States); reached {
				return map[string]any{"at": float64(at.UnixNano()) / 1e9}
			}
			time.Sleep(20 * time.Millisecond)
		}
	case "runs":
		return map[string]any{"runs": r.runs.Load()}
	default:
		return map[string]any{"error": "no such order: " + told.Do}
	}
	return map[string]any{}
}
