package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// controller is controller-runtime's cache, as a manager has it.
type controller struct {
	cache    crcache.Cache
	metadata bool
	unsafe   bool
}

const app = "app"

func newController(config *rest.Config, mode string) (cache, error) {
	options := crcache.Options{Scheme: scheme.Scheme}
	switch mode {
	case "unsafe":
		shared := true
		options.DefaultUnsafeDisableDeepCopy = &shared
	case "stripped":
		options.DefaultTransform = crcache.TransformStripManagedFields()
	}
	made, err := crcache.New(config, options)
	return &controller{cache: made, metadata: mode == "metadata", unsafe: mode == "unsafe"}, err
}

func (c *controller) object() client.Object {
	if c.metadata {
		one := &metav1.PartialObjectMetadata{}
		one.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
		return one
	}
	return &corev1.Pod{}
}

func (c *controller) list(options ...client.ListOption) int {
	if c.metadata {
		found := &metav1.PartialObjectMetadataList{}
		found.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "PodList"})
		if err := c.cache.List(context.Background(), found, options...); err != nil {
			panic(err)
		}
		return len(found.Items)
	}
	found := &corev1.PodList{}
	if err := c.cache.List(context.Background(), found, options...); err != nil {
		panic(err)
	}
	return len(found.Items)
}

func (c *controller) sync(ctx context.Context) error {
	err := c.cache.IndexField(ctx, c.object(), app, func(one client.Object) []string { return []string{one.GetLabels()[app]} })
	if err != nil {
		return err
	}
	go func() {
		if err := c.cache.Start(ctx); err != nil {
			panic(err)
		}
	}()
	if _, err := c.cache.GetInformer(ctx, c.object()); err != nil {
		return err
	}
	c.cache.WaitForCacheSync(ctx)
	return nil
}

func (c *controller) count() int {
	shared := true
	return c.list(&client.ListOptions{UnsafeDisableDeepCopy: &shared})
}

func (c *controller) get(at key) int {
	one := c.object()
	if err := c.cache.Get(context.Background(), client.ObjectKey(at), one); err != nil {
		panic(err)
	}
	return 1
}

func (c *controller) namespace(name string) int { return c.list(client.InNamespace(name)) }

func (c *controller) label(name, value string) int { return c.list(client.MatchingLabels{name: value}) }

func (c *controller) indexed(value string) int { return c.list(client.MatchingFields{app: value}) }

func (c *controller) keys(string) int { return -1 }

func (c *controller) shares() bool { return c.unsafe }

func (c *controller) annotation(at key, name string) string {
	one := c.object()
	if err := c.cache.Get(context.Background(), client.ObjectKey(at), one); err != nil {
		return ""
	}
	return one.GetAnnotations()[name]
}
