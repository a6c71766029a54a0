package main

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	clientcache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// informer is client-go's SharedInformer with its lister: it hands out what it holds, without a copy.
type informer struct {
	shared clientcache.SharedIndexInformer
	lister listers.PodLister
}

func cacheOf(mode, kubeconfig string) (cache, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = -1, -1
	switch mode {
	case "default", "unsafe", "stripped", "metadata":
		return newController(config, mode)
	case "informer":
		config.AcceptContentTypes, config.ContentType = "application/vnd.kubernetes.protobuf,application/json", "application/vnd.kubernetes.protobuf"
		return newInformer(config)
	case "informer-json":
		config.AcceptContentTypes, config.ContentType = "application/json", "application/json"
		return newInformer(config)
	}
	return nil, fmt.Errorf("no such mode: %s", mode)
}

func newInformer(config *rest.Config) (cache, error) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	pods := informers.NewSharedInformerFactory(clients, 0).Core().V1().Pods()
	made := &informer{pods.Informer(), pods.Lister()}
	return made, made.shared.AddIndexers(clientcache.Indexers{app: func(one any) ([]string, error) {
		return []string{one.(*corev1.Pod).Labels[app]}, nil
	}})
}

func (i *informer) sync(ctx context.Context) error {
	go i.shared.Run(ctx.Done())
	if !clientcache.WaitForCacheSync(ctx.Done(), i.shared.HasSynced) {
		return errors.New("not synced")
	}
	return nil
}

func (i *informer) count() int { return len(i.shared.GetStore().ListKeys()) }

func (i *informer) get(at key) int {
	if _, err := i.lister.Pods(at.Namespace).Get(at.Name); err != nil {
		panic(err)
	}
	return 1
}

func (i *informer) namespace(name string) int {
	found, err := i.lister.Pods(name).List(labels.Everything())
	if err != nil {
		panic(err)
	}
	return len(found)
}

func (i *informer) label(name, value string) int {
	found, err := i.lister.List(labels.SelectorFromSet(labels.Set{name: value}))
	if err != nil {
		panic(err)
	}
	return len(found)
}

func (i *informer) indexed(value string) int {
	found, err := i.shared.GetIndexer().ByIndex(app, value)
	if err != nil {
		panic(err)
	}
	return len(found)
}

func (i *informer) shares() bool { return true }

func (i *informer) keys(value string) int {
	found, err := i.shared.GetIndexer().IndexKeys(app, value)
	if err != nil {
		panic(err)
	}
	return len(found)
}

func (i *informer) annotation(at key, name string) string {
	one, err := i.lister.Pods(at.Namespace).Get(at.Name)
	if err != nil {
		return ""
	}
	return one.Annotations[name]
}
