// A group member made of franz-go.
package main

import (
	"context"
	"os"
	"strings"
	"sync"
	"time"

	"muster/clients/member"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func main() {
	config, orders := member.Start()
	var lock sync.Mutex
	owned := map[string]map[int32]bool{}
	report := func() {
		now := map[string][]int32{}
		for topic, numbers := range owned {
			for number := range numbers {
				now[topic] = append(now[topic], number)
			}
		}
		member.Assigned(now)
	}
	change := func(there bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			lock.Lock()
			defer lock.Unlock()
			for topic, numbers := range changed {
				if owned[topic] == nil {
					owned[topic] = map[int32]bool{}
				}
				for _, number := range numbers {
					if there {
						owned[topic][number] = true
					} else {
						delete(owned[topic], number)
					}
				}
			}
			report()
		}
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(config.Address), kgo.ClientID(config.Name), kgo.ConsumerGroup(config.Group),
		kgo.ConsumeTopics(config.Topics...), kgo.DisableAutoCommit(), kgo.Balancers(kgo.RangeBalancer()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelWarn, nil)),
		kgo.SessionTimeout(time.Duration(config.SessionMs) * time.Millisecond),
		kgo.HeartbeatInterval(time.Duration(config.HeartbeatMs) * time.Millisecond),
		kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsRevoked(change(false)), kgo.OnPartitionsLost(change(false)),
	}
	if config.Instance != "" {
		options = append(options, kgo.InstanceID(config.Instance))
	}
	ctx := context.Background()
	if config.Protocol == "consumer" {
		ctx = context.WithValue(ctx, "opt_in_kafka_next_gen_balancer_beta", true) //nolint:staticcheck // franz-go's own key
		options = append(options, kgo.WithContext(ctx))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		panic(err)
	}
	for {
		poll, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		fetches := client.PollFetches(poll)
		cancel()
		for _, failed := range fetches.Errors() {
			if !strings.Contains(failed.Err.Error(), "context deadline exceeded") {
				member.Error("fetch", failed.Err)
			}
		}
		select {
		case order := <-orders:
			if order.Do == "close" {
				client.Close()
				member.Say("closed", nil)
				return
			}
			obey(ctx, client, config, order)
		default:
		}
	}
}

func obey(ctx context.Context, client *kgo.Client, config member.Config, order member.Order) {
	topic, number := order.Partition()
	if order.Do == "commit" {
		offsets := map[string]map[int32]kgo.EpochOffset{topic: {number: {Epoch: -1, Offset: order.Offset}}}
		var failed error
		client.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error) {
			failed = err
			if err == nil {
				failed = kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode)
			}
		})
		if failed != nil {
			member.Say("refused", map[string]any{"error": failed.Error()})
			return
		}
		member.Say("committed", map[string]any{"place": order.Place, "offset": order.Offset})
		return
	}
	request := kmsg.NewPtrOffsetFetchRequest()
	request.Group = config.Group
	asked := kmsg.NewOffsetFetchRequestTopic()
	asked.Topic, asked.Partitions = topic, []int32{number}
	request.Topics = append(request.Topics, asked)
	answer, err := request.RequestWith(ctx, client)
	if err != nil {
		member.Error("find", err)
		return
	}
	member.Say("found", map[string]any{"place": order.Place, "offset": answer.Topics[0].Partitions[0].Offset})
}
