package main

import (
	"context"
	"fmt"
	"os"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// changes is the event handler of an informer of controller-runtime's cache, for bench/change_cost.py. It prints the CPU seconds of
// each round: up to the number of objects, and then up to each change with the last label.
type changes struct {
	objects, seen int
	begun         float64
}

const lastChange = "last"

func followChanges(ctx context.Context, objects int, url, token string) error {
	config := &rest.Config{Host: url, BearerToken: token, QPS: -1, Burst: -1}
	pods := crcache.ByObject{
		Label:      labels.SelectorFromSet(labels.Set{app: "web"}),
		Namespaces: map[string]crcache.Config{"default": {}},
	}
	made, err := crcache.New(config, crcache.Options{Scheme: scheme.Scheme, ByObject: map[client.Object]crcache.ByObject{&corev1.Pod{}: pods}})
	if err != nil {
		return err
	}
	informer, err := made.GetInformer(ctx, &corev1.Pod{}, crcache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	counted := &changes{objects: objects}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(one any) { counted.note(one.(*corev1.Pod)) },
		UpdateFunc: func(_, one any) { counted.note(one.(*corev1.Pod)) },
	})
	if err != nil {
		return err
	}
	return made.Start(ctx)
}

func (c *changes) note(pod *corev1.Pod) {
	c.seen++
	if c.seen == c.objects || pod.Labels["change"] == lastChange {
		now := cpuSeconds()
		fmt.Fprintln(os.Stdout, now-c.begun)
		c.begun = now
	}
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}
