// A manager with a controller of all pods that bench/whole_operator.py measures.
package main

import (
	"context"
	"os"
	"runtime/debug"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const round = "bench.example.com/round"

// podReconciler notes the pods that it was called for, and the last value of their annotation.
type podReconciler struct {
	client.Client
	mutex sync.Mutex
	seen  map[types.NamespacedName]string
}

func (r *podReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	pod := &corev1.Pod{}
	if err := r.Get(ctx, request.NamespacedName, pod); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.seen[request.NamespacedName] = pod.Annotations[round]
	return reconcile.Result{}, nil
}

func (r *podReconciler) start(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	config.QPS, config.Burst = -1, -1
	manager, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme.Scheme, Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	r.Client = manager.GetClient()
	if err := ctrl.NewControllerManagedBy(manager).For(&corev1.Pod{}).Complete(r); err != nil {
		return err
	}
	go func() {
		if err := manager.Start(ctx); err != nil {
			panic(err)
		}
	}()
	return nil
}

// count returns for how many pods the annotation has a value of at least this one; all pods have one of at least "".
func (r *podReconciler) count(least string) int {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	found := 0
	for _, value := range r.seen {
		if value >= least {
			found++
		}
	}
	return found
}

func (r *podReconciler) obey(told order) map[string]any {
	switch told.Do {
	case "start":
		if err := r.start(context.Background()); err != nil {
			return map[string]any{"error": err.Error()}
		}
	case "handled":
		for r.count(told.Round) < told.Pods {
			time.Sleep(20 * time.Millisecond)
		}
	case "rest":
		debug.FreeOSMemory()
	default:
		return map[string]any{"error": "no such order: " + told.Do}
	}
	return map[string]any{}
}
