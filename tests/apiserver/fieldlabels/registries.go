// Sets up what serves Kubernetes' resources, with a database that is never asked.
package main

import (
	"context"
	"io"
	"log"
	"maps"
	"net"
	"reflect"
	"runtime/debug"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiservice "k8s.io/kube-aggregator/pkg/registry/apiservice/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/controlplane"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
	admissionregistrationrest "k8s.io/kubernetes/pkg/registry/admissionregistration/rest"
	apiserverinternalrest "k8s.io/kubernetes/pkg/registry/apiserverinternal/rest"
	appsrest "k8s.io/kubernetes/pkg/registry/apps/rest"
	authenticationrest "k8s.io/kubernetes/pkg/registry/authentication/rest"
	authorizationrest "k8s.io/kubernetes/pkg/registry/authorization/rest"
	autoscalingrest "k8s.io/kubernetes/pkg/registry/autoscaling/rest"
	batchrest "k8s.io/kubernetes/pkg/registry/batch/rest"
	certificatesrest "k8s.io/kubernetes/pkg/registry/certificates/rest"
	coordinationrest "k8s.io/kubernetes/pkg/registry/coordination/rest"
	corerest "k8s.io/kubernetes/pkg/registry/core/rest"
	discoveryrest "k8s.io/kubernetes/pkg/registry/discovery/rest"
	eventsrest "k8s.io/kubernetes/pkg/registry/events/rest"
	flowcontrolrest "k8s.io/kubernetes/pkg/registry/flowcontrol/rest"
	networkingrest "k8s.io/kubernetes/pkg/registry/networking/rest"
	noderest "k8s.io/kubernetes/pkg/registry/node/rest"
	policyrest "k8s.io/kubernetes/pkg/registry/policy/rest"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"
	resourcerest "k8s.io/kubernetes/pkg/registry/resource/rest"
	schedulingrest "k8s.io/kubernetes/pkg/registry/scheduling/rest"
	storagerest "k8s.io/kubernetes/pkg/registry/storage/rest"
	storagemigrationrest "k8s.io/kubernetes/pkg/registry/storagemigration/rest"
)

// registries remembers, by the type of the objects, how each registry makes an object's set of fields.
type registries struct {
	attributes map[reflect.Type]storage.AttrFunc
}

func newRegistries() *registries {
	// They log what they would do if there were a database.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	check(utilfeature.DefaultMutableFeatureGate.Set("AllAlpha=true,AllBeta=true"))
	return &registries{map[reflect.Type]storage.AttrFunc{}}
}

// groups gives all that an API server of this version can serve, if everything is enabled.
func (r *registries) groups() []genericapiserver.APIGroupInfo {
	enabled := serverstorage.NewResourceConfig()
	expected := map[string]bool{}
	for version := range controlplane.DefaultAPIResourceConfigSource().GroupVersionConfigs {
		enabled.EnableVersions(version)
		expected[version.Group] = true
	}
	enabled.EnableVersions(apiextensionsv1.SchemeGroupVersion, apiregistrationv1.SchemeGroupVersion)

	client := &restclient.Config{Host: "https://127.0.0.1:1"}
	clientset := kubernetes.NewForConfigOrDie(client)
	informers := informers.NewSharedInformerFactory(clientset, 0)
	allow := authorizerfactory.NewAlwaysAllowAuthorizer()
	_, services, err := net.ParseCIDR("10.0.0.0/24")
	check(err)
	core, err := corerest.New(corerest.Config{
		GenericConfig: corerest.GenericConfig{
			StorageFactory: newNoStorage(), LoopbackClientConfig: client, Informers: informers,
		},
		Services: corerest.ServicesConfig{
			ClusterIPRange: *services, NodePortRange: utilnet.PortRange{Base: 30000, Size: 100},
		},
	}, allow)
	check(err)
	// Kubernetes' own list of these (controlplane.CompletedConfig.StorageProviders) is out of reach without a running
	// server. If one were missing here, so would be its group, and that is found below.
	providers := []controlplaneapiserver.RESTStorageProvider{
		core,
		admissionregistrationrest.RESTStorageProvider{Authorizer: allow, DiscoveryClient: clientset.Discovery()},
		apiserverinternalrest.StorageProvider{},
		appsrest.StorageProvider{},
		authenticationrest.RESTStorageProvider{},
		authorizationrest.RESTStorageProvider{Authorizer: allow},
		autoscalingrest.RESTStorageProvider{},
		batchrest.RESTStorageProvider{},
		certificatesrest.RESTStorageProvider{Authorizer: allow},
		coordinationrest.RESTStorageProvider{},
		discoveryrest.StorageProvider{},
		eventsrest.RESTStorageProvider{},
		flowcontrolrest.RESTStorageProvider{InformerFactory: informers},
		networkingrest.RESTStorageProvider{},
		noderest.RESTStorageProvider{},
		policyrest.RESTStorageProvider{},
		rbacrest.RESTStorageProvider{Authorizer: allow},
		resourcerest.RESTStorageProvider{NamespaceClient: clientset.CoreV1().Namespaces(), Authorizer: allow},
		schedulingrest.RESTStorageProvider{},
		storagemigrationrest.RESTStorageProvider{},
		storagerest.RESTStorageProvider{},
	}

	var groups []genericapiserver.APIGroupInfo
	version := compatibility.DefaultBuildEffectiveVersion().BinaryVersion()
	expired, err := genericapiserver.NewResourceExpirationEvaluator(version)
	check(err)
	for _, provider := range providers {
		group, err := provider.NewRESTStorage(enabled, r)
		check(err)
		delete(expected, provider.GroupName())
		resources := group.VersionedResourcesStorageMap
		check(expired.RemoveUnavailableKinds(provider.GroupName(), group.Scheme, resources, enabled))
		groups = append(groups, group)
	}
	if len(expected) > 0 {
		log.Fatalf("the providers of these groups are missing here: %v", slices.Collect(maps.Keys(expected)))
	}

	crds, err := customresourcedefinition.NewREST(apiextensions.Scheme, r)
	check(err)
	groups = append(groups, genericapiserver.APIGroupInfo{
		Scheme:              apiextensions.Scheme,
		PrioritizedVersions: []schema.GroupVersion{apiextensionsv1.SchemeGroupVersion},
		VersionedResourcesStorageMap: map[string]map[string]rest.Storage{
			"v1": {"customresourcedefinitions": crds},
		},
	})
	return append(groups, apiservice.NewRESTStorage(enabled, r, false))
}

// fieldsOf gives the field labels that a registry sets for an object, with their values.
func (r *registries) fieldsOf(example runtime.Object) fields.Set {
	attributes, ok := r.attributes[reflect.TypeOf(example)]
	if !ok {
		log.Fatalf("no registry for %T", example)
	}
	_, set, err := attributes(example)
	check(err)
	return set
}

// GetRESTOptions is asked by each registry for its storage.
func (r *registries) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	return generic.RESTOptions{
		StorageConfig:  &storagebackend.ConfigForResource{GroupResource: resource},
		ResourcePrefix: resource.String(),
		Decorator: func(
			_ *storagebackend.ConfigForResource, _ string, _ func(runtime.Object) (string, error),
			newObject, _ func() runtime.Object, attributes storage.AttrFunc, _ storage.IndexerFuncs, _ *cache.Indexers,
		) (storage.Interface, factory.DestroyFunc, error) {
			r.attributes[reflect.TypeOf(newObject())] = attributes
			return nil, func() {}, nil
		},
	}, nil
}

// noStorage is for the allocator of ports, which makes itself a client of the database, and waits until it connects.
type noStorage struct{ address string }

func newNoStorage() noStorage {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	server := grpc.NewServer()
	etcdserverpb.RegisterMaintenanceServer(server, &maintenance{})
	go func() { check(server.Serve(listener)) }()
	return noStorage{listener.Addr().String()}
}

type maintenance struct {
	etcdserverpb.UnimplementedMaintenanceServer
}

// Status is all that a client asks on its own: what the database is able to.
func (*maintenance) Status(context.Context, *etcdserverpb.StatusRequest) (*etcdserverpb.StatusResponse, error) {
	return &etcdserverpb.StatusResponse{Version: "3.6.0"}, nil
}

func (s noStorage) NewConfig(
	resource schema.GroupResource, _ runtime.Object,
) (*storagebackend.ConfigForResource, error) {
	config := storagebackend.NewDefaultConfig("/", legacyscheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion))
	config.Transport.ServerList = []string{"http://" + s.address}
	return config.ForResource(resource), nil
}
func (noStorage) ResourcePrefix(schema.GroupResource) string { return "" }
func (noStorage) Configs() []storagebackend.Config           { return nil }
func (noStorage) Backends() []serverstorage.Backend          { return nil }

func kubernetesVersion() string {
	build, ok := debug.ReadBuildInfo()
	if ok {
		for _, module := range build.Deps {
			if module.Path == "k8s.io/kubernetes" {
				return module.Version
			}
		}
	}
	log.Fatal("this program does not know what it is made of")
	return ""
}
