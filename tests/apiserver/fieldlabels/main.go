// Prints the kinds of Kubernetes and their field labels as a module of Python (kopf_selectcache/core/selection/_field_table.py).
//
// Nothing is read from documentation or by hand. The API server's own storage providers are set up as for a server with
// every feature and version, alpha and beta included, on top of a database that is never asked. They tell the
// resources, their names and their scope; their schemes are asked which of many thousand candidates they accept
// as a field label; and an empty object tells which of the labels its registry ever sets.
package main

import (
	"fmt"
	"log"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

type kind struct {
	group, kind, plural string
	versions, shorts    []string
	namespaced          bool
	// The field labels, each followed by a colon and what the server takes it for, unless that is the label itself.
	fields string
}

func main() {
	log.SetFlags(0)
	literals := literalsOfDependencies()
	registries := newRegistries()
	var kinds []*kind
	for _, group := range registries.groups() {
		for version, resources := range group.VersionedResourcesStorageMap {
			for resource, storage := range resources {
				if !cacheable(resource, storage) {
					continue
				}
				kinds = append(kinds, describe(group, version, resource, storage, registries, literals))
			}
		}
	}
	fmt.Print(python(merged(kinds)))
}

// cacheable tells whether there is anything to select: subresources, reviews and the like cannot be listed and watched.
func cacheable(resource string, storage rest.Storage) bool {
	_, lists := storage.(rest.Lister)
	_, watches := storage.(rest.Watcher)
	return lists && watches && !strings.Contains(resource, "/")
}

func describe(
	group genericapiserver.APIGroupInfo, version, resource string, storage rest.Storage,
	registries *registries, literals map[string]bool,
) *kind {
	groupVersion := schema.GroupVersion{Group: group.PrioritizedVersions[0].Group, Version: version}
	gvk, err := endpoints.GetResourceKind(groupVersion, storage, group.Scheme)
	check(err)
	found := &kind{
		group: gvk.Group, kind: gvk.Kind, plural: resource, versions: []string{version},
		namespaced: storage.(rest.Scoper).NamespaceScoped(),
	}
	// Today every kind's singular is its name in small letters; where it is not, the table needs a place for it.
	if singular := storage.(rest.SingularNameProvider).GetSingularName(); singular != strings.ToLower(gvk.Kind) {
		log.Fatalf("%s is called %s in the singular", gvk, singular)
	}
	if provider, ok := storage.(rest.ShortNamesProvider); ok {
		found.shorts = slices.Sorted(slices.Values(provider.ShortNames()))
	}

	example, err := group.Scheme.New(gvk)
	check(err)
	candidates := []string{}
	for literal := range literals {
		candidates = append(candidates, literal)
	}
	set := registries.fieldsOf(storage.New())
	for label := range set {
		candidates = append(candidates, label)
	}
	candidates = append(candidates, jsonPaths(example)...)
	slices.Sort(candidates)
	var accepted []string
	for _, label := range slices.Compact(candidates) {
		internal, _, err := group.Scheme.ConvertFieldLabel(gvk, label, "")
		if err != nil {
			continue
		}
		if _, ok := set[internal]; !ok {
			internal = ""
		}
		if internal != label {
			label += ":" + internal
		}
		accepted = append(accepted, label)
	}
	found.fields = strings.Join(accepted, " ")
	return found
}

// merged makes one entry of all versions of a kind that agree in everything else.
func merged(kinds []*kind) []*kind {
	byAll := map[string]*kind{}
	for _, one := range kinds {
		key := fmt.Sprint(one.group, one.kind, one.plural, one.shorts, one.namespaced, one.fields)
		if same, ok := byAll[key]; ok {
			same.versions = append(same.versions, one.versions...)
		} else {
			byAll[key] = one
		}
	}
	result := []*kind{}
	for _, one := range byAll {
		slices.Sort(one.versions)
		result = append(result, one)
	}
	slices.SortFunc(result, func(a, b *kind) int {
		return strings.Compare(a.group+" "+a.kind+" "+a.versions[0], b.group+" "+b.kind+" "+b.versions[0])
	})
	return result
}

func python(kinds []*kind) string {
	var out strings.Builder
	fmt.Fprintf(&out, "\"\"\"Kubernetes %s: kinds and field labels. "+
		"Generated in tests/apiserver by `go run ./fieldlabels`: do not edit.\"\"\"\n\n", kubernetesVersion())
	out.WriteString("# Group, versions, kind, plural, short names, whether namespaced, and the field labels: " +
		"with a colon and what the server\n" +
		"# takes it for, where that differs, and with a colon alone where it takes it for something that it never sets.\n")
	out.WriteString("Row = tuple[str, tuple[str, ...], str, str, tuple[str, ...], bool, str]\n\n")
	out.WriteString("KINDS: tuple[Row, ...] = (\n")
	for _, one := range kinds {
		scope := "False"
		if one.namespaced {
			scope = "True"
		}
		fmt.Fprintf(&out, "    (%q, %s, %q,\n", one.group, tuple(one.versions), one.kind)
		fmt.Fprintf(&out, "     %q, %s, %s,%s),\n", one.plural, tuple(one.shorts), scope, wrapped(one.fields))
	}
	out.WriteString(")\n")
	return out.String()
}

func tuple(items []string) string {
	var quoted []string
	for _, item := range items {
		quoted = append(quoted, fmt.Sprintf("%q", item))
	}
	if len(items) == 1 {
		return "(" + quoted[0] + ",)"
	}
	return "(" + strings.Join(quoted, ", ") + ")"
}

// wrapped writes a text as one literal where it is short, else as adjacent ones on lines of their own.
func wrapped(text string) string {
	if len(text) < 50 {
		return fmt.Sprintf(" %q", text)
	}
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > 105 {
			lines = append(lines, fmt.Sprintf("\n      %q", line+" "))
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	all := strings.Join(append(lines, fmt.Sprintf("\n      %q", line)), "")
	return "\n     (" + strings.TrimLeft(all, "\n ") + ")"
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
