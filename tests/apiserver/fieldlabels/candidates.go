// Gathers what might be a field label: conversion functions can only be asked about one label at a time.
package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// literalsOfDependencies gives every string literal of Kubernetes' code in this program that could be a field label.
// Those that the conversion functions compare with are among them, be it in place or as a constant of any package.
func literalsOfDependencies() map[string]bool {
	format := "{{if not .Standard}}{{.ImportPath}}\t{{.Dir}}{{end}}"
	list := exec.Command("go", "list", "-deps", "-f", format, "./fieldlabels")
	list.Stderr = os.Stderr
	output, err := list.Output()
	check(err)
	literals := map[string]bool{}
	for _, line := range strings.Split(strings.TrimSpace(string(output)), "\n") {
		path, folder, _ := strings.Cut(line, "\t")
		if !strings.HasPrefix(path, "k8s.io/") {
			continue
		}
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		check(err)
		for _, file := range files {
			// What generators have written converts and documents types; their paths are found by reflection.
			name := filepath.Base(file)
			if !strings.HasSuffix(name, "_test.go") && !strings.Contains(name, "generated") {
				addLiterals(file, literals)
			}
		}
	}
	return literals
}

func addLiterals(file string, literals map[string]bool) {
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	check(err)
	ast.Inspect(tree, func(node ast.Node) bool {
		if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			text, err := strconv.Unquote(literal.Value)
			check(err)
			// Sentences and formats are none; and what has these characters could not be written in a selector.
			if text != "" && !strings.ContainsAny(text, " \t\n:,=!%") {
				literals[text] = true
			}
		}
		return true
	})
}

// jsonPaths gives the dotted paths of all fields of an object, deeper than those of any field label so far.
func jsonPaths(object runtime.Object) []string {
	return pathsOf(reflect.TypeOf(object), 4)
}

func pathsOf(kind reflect.Type, depth int) []string {
	for kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	if kind.Kind() != reflect.Struct || depth == 0 {
		return nil
	}
	var paths []string
	for i := range kind.NumField() {
		field := kind.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" && strings.Contains(options, "inline") {
			paths = append(paths, pathsOf(field.Type, depth)...)
		}
		if name == "" || name == "-" {
			continue
		}
		paths = append(paths, name)
		for _, path := range pathsOf(field.Type, depth-1) {
			paths = append(paths, name+"."+path)
		}
	}
	return paths
}
