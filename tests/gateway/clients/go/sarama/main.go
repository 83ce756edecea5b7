// A group member made of sarama.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"time"

	"muster/clients/member"

	"github.com/IBM/sarama"
)

type handler struct {
	config  member.Config
	orders  <-chan member.Order
	stop    context.CancelFunc
	closing *bool
}

func (h *handler) Setup(session sarama.ConsumerGroupSession) error {
	member.Assigned(session.Claims())
	go h.obey(session)
	return nil
}

func (h *handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h *handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case <-claim.Messages():
		case <-session.Context().Done():
			return nil
		}
	}
}

func (h *handler) obey(session sarama.ConsumerGroupSession) {
	for {
		select {
		case <-session.Context().Done():
			return
		case order := <-h.orders:
			if order.Do == "close" {
				*h.closing = true
				h.stop()
				return
			}
			topic, number := order.Partition()
			if order.Do == "commit" {
				session.MarkOffset(topic, number, order.Offset, "")
				session.Commit()
				member.Say("committed", map[string]any{"place": order.Place, "offset": order.Offset})
			}
		}
	}
}

func main() {
	config, orders := member.Start()
	sarama.Logger = log.New(os.Stderr, "sarama ", log.LstdFlags)
	settings := sarama.NewConfig()
	settings.ClientID = config.Name
	settings.Version = sarama.V3_6_0_0
	settings.Consumer.Offsets.Initial = sarama.OffsetOldest
	settings.Consumer.Offsets.AutoCommit.Enable = false
	settings.Consumer.Return.Errors = true
	settings.Consumer.Group.Session.Timeout = time.Duration(config.SessionMs) * time.Millisecond
	settings.Consumer.Group.Heartbeat.Interval = time.Duration(config.HeartbeatMs) * time.Millisecond
	settings.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	settings.Consumer.Group.InstanceId = config.Instance
	group, err := sarama.NewConsumerGroup([]string{config.Address}, config.Group, settings)
	if err != nil {
		panic(err)
	}
	go func() {
		for err := range group.Errors() {
			member.Error("group", err)
		}
	}()
	ctx, stop := context.WithCancel(context.Background())
	closing := false
	for !closing {
		err := group.Consume(ctx, config.Topics, &handler{config, orders, stop, &closing})
		if err != nil && !errors.Is(err, context.Canceled) {
			member.Error("consume", err)
			time.Sleep(200 * time.Millisecond)
		}
	}
	if err := group.Close(); err != nil {
		member.Error("close", err)
	}
	member.Say("closed", nil)
}
