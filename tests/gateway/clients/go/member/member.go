// Package member is what the Go members share: orders come as JSON lines, events go out as JSON lines.
package member

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"sync"
)

// Config is how a test asks for a member; times are in milliseconds.
type Config struct {
	Client      string   `json:"client"`
	Name        string   `json:"name"`
	Address     string   `json:"address"`
	Group       string   `json:"group"`
	Topics      []string `json:"topics"`
	Instance    string   `json:"instance"`
	Protocol    string   `json:"protocol"`
	SessionMs   int      `json:"session_ms"`
	HeartbeatMs int      `json:"heartbeat_ms"`
}

// Order is one line of the standard input.
type Order struct {
	Do     string `json:"do"`
	Place  []any  `json:"place"`
	Offset int64  `json:"offset"`
}

// Partition is the topic and the number of the partition that the order is about.
func (o Order) Partition() (string, int32) {
	return o.Place[0].(string), int32(o.Place[1].(float64))
}

var (
	out    sync.Mutex
	lastly string
)

// Say writes an event.
func Say(event string, details map[string]any) {
	line := map[string]any{"event": event}
	for name, value := range details {
		line[name] = value
	}
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	out.Lock()
	defer out.Unlock()
	fmt.Println(string(text))
}

// Assigned says the assignment whenever it is another one.
func Assigned(partitions map[string][]int32) {
	places := [][2]any{}
	for topic, numbers := range partitions {
		for _, number := range numbers {
			places = append(places, [2]any{topic, number})
		}
	}
	sort.Slice(places, func(a, b int) bool { return fmt.Sprint(places[a]) < fmt.Sprint(places[b]) })
	now := fmt.Sprint(places)
	out.Lock()
	changed := now != lastly
	lastly = now
	out.Unlock()
	if changed {
		Say("assigned", map[string]any{"partitions": places})
	}
}

// Error writes a line that the tests take for an error of the library.
func Error(what string, err error) {
	fmt.Fprintf(os.Stderr, "go member ERROR %s: %v\n", what, err)
}

// Start reads the configuration from the first argument and the orders from the standard input.
func Start() (Config, <-chan Order) {
	var config Config
	if err := json.Unmarshal([]byte(os.Args[1]), &config); err != nil {
		panic(err)
	}
	orders := make(chan Order, 100)
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			var order Order
			if err := json.Unmarshal(lines.Bytes(), &order); err != nil {
				panic(err)
			}
			orders <- order
		}
		orders <- Order{Do: "close"}
	}()
	return config, orders
}
