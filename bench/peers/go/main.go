// The caches of Go that the bench measures, one program with modes: it syncs on an order, and times the ordered reads.
//
// Must not look at what it reads. One line of JSON in, one out: bench/peers/asking.py has the words.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"sort"
	"strconv"
	"time"
)

type key struct{ Namespace, Name string }

// cache is what a mode must have. Each read returns how many objects it gave, or less than 0 if there is no such read.
type cache interface {
	sync(ctx context.Context) error
	shares() bool // Whether what it hands out is what it holds.
	count() int
	get(at key) int
	namespace(name string) int
	label(name, value string) int
	indexed(value string) int
	keys(value string) int
	annotation(at key, name string) string
}

type order struct {
	Do         string      `json:"do"`
	Form       string      `json:"form"`
	Keys       [][2]string `json:"keys"`
	Namespace  string      `json:"namespace"`
	Label      [2]string   `json:"label"`
	Times      int         `json:"times"`
	Annotation [2]string   `json:"annotation"`
	Every      float64     `json:"every"`
}

func main() {
	if os.Args[1] == "changes" {
		objects, err := strconv.Atoi(os.Args[2])
		if err == nil {
			err = followChanges(context.Background(), objects, os.Args[3], os.Args[4])
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	made, err := cacheOf(os.Args[1], os.Getenv("KUBECONFIG"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
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
		tell(obeyed(made, told))
	}
}

func tell(what map[string]any) {
	line, _ := json.Marshal(what)
	os.Stdout.Write(append(line, '\n'))
}

func obeyed(made cache, told order) map[string]any {
	switch told.Do {
	case "sync":
		began := time.Now()
		if err := made.sync(context.Background()); err != nil {
			return map[string]any{"error": err.Error()}
		}
		return map[string]any{"seconds": time.Since(began).Seconds(), "objects": made.count()}
	case "collect":
		debug.FreeOSMemory()
		return map[string]any{}
	case "until":
		at := key{told.Keys[0][0], told.Keys[0][1]}
		for made.annotation(at, told.Annotation[0]) != told.Annotation[1] {
			time.Sleep(time.Duration(told.Every * float64(time.Second)))
		}
		return map[string]any{"at": float64(time.Now().UnixNano()) / 1e9}
	}
	if read := reading(made, told); read != nil {
		return timed(told.Times, read)
	}
	return map[string]any{"left out": "no such read"}
}

func reading(made cache, told order) func(int) int {
	switch {
	case told.Form == "keys" && told.Do == "label":
		return func(int) int { return made.keys(told.Label[1]) }
	case told.Form != "" && (told.Form != "view" || !made.shares()):
		return nil
	}
	switch told.Do {
	case "get":
		asked := make([]key, len(told.Keys))
		for index, each := range told.Keys {
			asked[index] = key{each[0], each[1]}
		}
		return func(index int) int { return made.get(asked[index%len(asked)]) }
	case "namespace":
		return func(int) int { return made.namespace(told.Namespace) }
	case "label":
		return func(int) int { return made.label(told.Label[0], told.Label[1]) }
	case "indexed":
		return func(int) int { return made.indexed(told.Label[1]) }
	}
	return nil
}

func timed(times int, read func(index int) int) map[string]any {
	took := make([]float64, times)
	found := 0
	for index := range took {
		began := time.Now()
		found = read(index)
		took[index] = float64(time.Since(began).Nanoseconds()) / 1e3
		if found < 0 {
			return map[string]any{"left out": "no such read"}
		}
	}
	sort.Float64s(took)
	return map[string]any{"p50": took[times/2], "p99": took[times*99/100], "objects": found}
}
