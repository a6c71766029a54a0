// The oracle answers what Kubernetes' own Go code makes of selector texts: one JSON question per line of stdin,
// one JSON answer per line of stdout. It judges nothing itself.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"log"
	"os"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

type question struct {
	Kind string              `json:"kind"`
	Text string              `json:"text"`
	Sets []map[string]string `json:"sets"`
}

type answer struct {
	OK           bool     `json:"ok"`
	Canonical    string   `json:"canonical"`
	Requirements []string `json:"requirements"` // In Go's order, each as Go prints it.
	Matches      []bool   `json:"matches"`      // One for each of the sets, in their order.
	Error        string   `json:"error,omitempty"`
}

func main() {
	// A decoder, not a scanner of lines: a question may be of any length.
	in := json.NewDecoder(bufio.NewReaderSize(os.Stdin, 1<<20))
	buffered := bufio.NewWriterSize(os.Stdout, 1<<20)
	out := json.NewEncoder(buffered)
	out.SetEscapeHTML(false)
	for {
		var asked question
		if err := in.Decode(&asked); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			log.Fatalf("not a question: %v", err)
		}
		if err := out.Encode(reply(asked)); err != nil {
			log.Fatalf("cannot answer: %v", err)
		}
	}
	if err := buffered.Flush(); err != nil {
		log.Fatalf("cannot answer: %v", err)
	}
}

func reply(asked question) answer {
	switch asked.Kind {
	case "label":
		return replyLabel(asked)
	case "field":
		return replyField(asked)
	}
	log.Fatalf("not a kind of selector: %q", asked.Kind)
	panic("unreachable")
}

func replyLabel(asked question) answer {
	selector, err := labels.Parse(asked.Text)
	if err != nil {
		return refusal(err)
	}
	result := answer{OK: true, Canonical: selector.String(), Requirements: []string{}, Matches: []bool{}}
	requirements, _ := selector.Requirements()
	for i := range requirements {
		result.Requirements = append(result.Requirements, requirements[i].String())
	}
	for _, set := range asked.Sets {
		result.Matches = append(result.Matches, selector.Matches(labels.Set(set)))
	}
	return result
}

func replyField(asked question) answer {
	selector, err := fields.ParseSelector(asked.Text)
	if err != nil {
		return refusal(err)
	}
	result := answer{OK: true, Canonical: selector.String(), Requirements: []string{}, Matches: []bool{}}
	for _, r := range selector.Requirements() {
		text := r.Field + string(r.Operator) + fields.EscapeValue(r.Value)
		result.Requirements = append(result.Requirements, text)
	}
	for _, set := range asked.Sets {
		result.Matches = append(result.Matches, selector.Matches(fields.Set(set)))
	}
	return result
}

func refusal(err error) answer {
	return answer{Requirements: []string{}, Matches: []bool{}, Error: err.Error()}
}
