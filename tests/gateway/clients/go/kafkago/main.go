// A group member made of kafka-go: its ConsumerGroup for what is assigned, and a Reader's reads for what is fetched.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"muster/clients/member"

	kafka "github.com/segmentio/kafka-go"
)

func main() {
	config, orders := member.Start()
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: config.Group, Brokers: []string{config.Address}, Topics: config.Topics,
		Dialer:            &kafka.Dialer{ClientID: config.Name, Timeout: 10 * time.Second},
		GroupBalancers:    []kafka.GroupBalancer{kafka.RangeGroupBalancer{}},
		SessionTimeout:    time.Duration(config.SessionMs) * time.Millisecond,
		HeartbeatInterval: time.Duration(config.HeartbeatMs) * time.Millisecond,
		StartOffset:       kafka.FirstOffset,
		RebalanceTimeout:  60 * time.Second,
		ErrorLogger:       kafka.LoggerFunc(func(text string, args ...any) { fmt.Fprintf(os.Stderr, text+"\n", args...) }),
	})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	closed := make(chan struct{})
	for {
		generation, err := group.Next(ctx)
		if errors.Is(err, kafka.ErrGroupClosed) {
			<-closed
			return
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "joining again:", err)
			continue
		}
		owned := map[string][]int32{}
		for topic, assigned := range generation.Assignments {
			for _, assignment := range assigned {
				owned[topic] = append(owned[topic], int32(assignment.ID))
				read(generation, config, topic, assignment)
			}
		}
		generation.Start(func(ctx context.Context) { obey(ctx, group, generation, orders, closed) })
		member.Assigned(owned)
	}
}

func obey(ctx context.Context, group *kafka.ConsumerGroup, generation *kafka.Generation, orders <-chan member.Order, closed chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case order := <-orders:
			if order.Do == "close" {
				go func() {
					if err := group.Close(); err != nil {
						member.Error("close", err)
					}
					member.Say("closed", nil)
					close(closed)
				}()
				return
			}
			topic, number := order.Partition()
			if order.Do == "commit" {
				offsets := map[string]map[int]int64{topic: {int(number): order.Offset}}
				if err := generation.CommitOffsets(offsets); err != nil {
					member.Say("refused", map[string]any{"error": err.Error()})
					continue
				}
				member.Say("committed", map[string]any{"place": order.Place, "offset": order.Offset})
			}
		}
	}
}

// read is what a Reader of the group does with one partition: from the committed offset on.
func read(generation *kafka.Generation, config member.Config, topic string, assignment kafka.PartitionAssignment) {
	generation.Start(func(ctx context.Context) {
		reader := kafka.NewReader(kafka.ReaderConfig{
			Brokers: []string{config.Address}, Topic: topic, Partition: assignment.ID, MaxWait: 2 * time.Second,
			ErrorLogger: kafka.LoggerFunc(func(text string, args ...any) { member.Error("read", fmt.Errorf(text, args...)) }),
		})
		defer reader.Close()
		if err := reader.SetOffset(assignment.Offset); err != nil {
			member.Error("offset", err)
			return
		}
		for ctx.Err() == nil {
			if _, err := reader.ReadMessage(ctx); err != nil && ctx.Err() == nil {
				member.Error("read", err)
				time.Sleep(100 * time.Millisecond)
			}
		}
	})
}
