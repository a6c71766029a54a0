// The oracle feeds scripts to client-go's event correlator, in virtual time: one JSON script per line of stdin, a list
// of outcomes, one for each operation, per line of stdout. It judges nothing.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	testingclock "k8s.io/utils/clock/testing"
)

// The options of a correlator. A zero is the default of client-go.
type options struct {
	Similar    int     `json:"similar"`
	Within     int     `json:"within"`
	Burst      int     `json:"burst"`
	Refill     float64 `json:"refill"` // Seconds.
	Remembered int     `json:"remembered"`
	Functions  bool    `json:"functions"` // Functions of our own for the keys and the message; see below.
}

// Strings of an occurrence: component, host, controller, instance, kind, namespace, name, uid, fieldPath, apiVersion,
// type, reason, message.
type occurrence [13]string

type operation struct {
	At         time.Duration `json:"at"` // Nanoseconds since 1970.
	Occurrence *occurrence   `json:"occurrence"`
	// An answer of the server instead: to the write of the operation with this index.
	Confirms int    `json:"confirms"`
	Name     string `json:"name"` // Empty if it is that of the write.
	Version  string `json:"version"`
	Add      int32  `json:"add"` // To the count of the write, which is 0 at least.
}

type script struct {
	Options options     `json:"options"`
	Ops     []operation `json:"ops"`
}

type outcome struct {
	Skip      bool     `json:"skip,omitempty"`
	Patch     []string `json:"patch,omitempty"` // The fields of the patch; none in a creation.
	Namespace string   `json:"namespace,omitempty"`
	Name      string   `json:"name,omitempty"`
	Version   string   `json:"version,omitempty"`
	Count     int32    `json:"count,omitempty"`
	First     int64    `json:"first,omitempty"`
	Last      int64    `json:"last,omitempty"`
	Message   string   `json:"message,omitempty"`
	// Of an aggregate both are empty.
	Controller string `json:"controller,omitempty"`
	Instance   string `json:"instance,omitempty"`
}

// What a recorder makes of a call, but for the name of an object that is none of an Event.
func (o *occurrence) event(at time.Duration) *v1.Event {
	now := metav1.NewTime(time.Unix(0, int64(at)))
	namespace := o[5]
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return &v1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: fmt.Sprintf("%v.%x", o[6], now.UnixNano()), Namespace: namespace},
		Source:              v1.EventSource{Component: o[0], Host: o[1]},
		ReportingController: o[2],
		ReportingInstance:   o[3],
		InvolvedObject: v1.ObjectReference{Kind: o[4], Namespace: o[5], Name: o[6], UID: types.UID(o[7]),
			FieldPath: o[8], APIVersion: o[9]},
		Type: o[10], Reason: o[11], Message: o[12],
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
}

func play(asked script) ([]outcome, error) {
	clock := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	given := record.CorrelatorOptions{
		MaxEvents: asked.Options.Similar, MaxIntervalInSeconds: asked.Options.Within,
		BurstSize: asked.Options.Burst, LRUCacheSize: asked.Options.Remembered, Clock: clock,
	}
	if asked.Options.Refill != 0 {
		given.QPS = float32(1 / asked.Options.Refill)
	}
	if asked.Options.Functions {
		given.KeyFunc = func(event *v1.Event) (string, string) { return event.Reason, strings.ToUpper(event.Message) }
		given.MessageFunc = func(event *v1.Event) string { return event.Reason + " again: " + event.Message }
		given.SpamKeyFunc = func(event *v1.Event) string { return event.Type + event.Message }
	}
	correlator := record.NewEventCorrelatorWithOptions(given)
	outcomes := make([]outcome, len(asked.Ops))
	events := make([]*v1.Event, len(asked.Ops))
	for index, op := range asked.Ops {
		clock.SetTime(time.Unix(0, int64(op.At)))
		if op.Occurrence == nil {
			// Nothing was written of what was skipped.
			if event := events[op.Confirms]; event != nil {
				answer := event.DeepCopy()
				if op.Name != "" {
					answer.Name = op.Name
				}
				answer.ResourceVersion, answer.Count = op.Version, max(0, answer.Count+op.Add)
				correlator.UpdateState(answer)
			}
			continue
		}
		result, err := correlator.EventCorrelate(op.Occurrence.event(op.At))
		if err != nil {
			return nil, err
		}
		if result.Skip {
			outcomes[index].Skip = true
			continue
		}
		event := result.Event
		events[index] = event
		outcomes[index] = outcome{
			Namespace: event.Namespace, Name: event.Name, Version: event.ResourceVersion, Count: event.Count,
			First: event.FirstTimestamp.UnixNano(), Last: event.LastTimestamp.UnixNano(), Message: event.Message,
			Controller: event.ReportingController, Instance: event.ReportingInstance,
		}
		if result.Patch != nil {
			fields := map[string]any{}
			if err := json.Unmarshal(result.Patch, &fields); err != nil {
				return nil, err
			}
			for _, name := range []string{"count", "lastTimestamp", "message"} {
				if _, found := fields[name]; found {
					outcomes[index].Patch = append(outcomes[index].Patch, name)
					delete(fields, name)
				}
			}
			if len(fields) > 0 {
				return nil, fmt.Errorf("a patch has other fields: %s", result.Patch)
			}
		}
	}
	return outcomes, nil
}

func main() {
	in, out := bufio.NewReader(os.Stdin), bufio.NewWriter(os.Stdout)
	decoder, encoder := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var asked script
		err := decoder.Decode(&asked)
		if err == io.EOF {
			break
		}
		var outcomes []outcome
		if err == nil {
			outcomes, err = play(asked)
		}
		if err == nil {
			err = encoder.Encode(outcomes)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if err := out.Flush(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
