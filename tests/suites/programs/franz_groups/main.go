// A member of a consumer group or of a share group with franz-go:
// group BOOTSTRAP GROUP PROTOCOL TOPICS [NAME=VALUE ...], or share BOOTSTRAP GROUP MODE TOPICS.
// What it must do and print is written in tests/suites/group_members.py.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var telling sync.Mutex

func tell(format string, values ...any) {
	telling.Lock()
	defer telling.Unlock()
	fmt.Printf("%d %s\n", time.Now().UnixMilli(), fmt.Sprintf(format, values...))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func names(partitions map[string][]int32) string {
	var found []string
	for topic, numbers := range partitions {
		for _, number := range numbers {
			found = append(found, fmt.Sprintf("%s:%d", topic, number))
		}
	}
	sort.Strings(found)
	return strings.Join(found, " ")
}

func tells(what string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
		if len(partitions) > 0 {
			tell("%s %s", what, names(partitions))
		}
	}
}

// Ends when a byte, or the end, comes on standard input.
func untilTold() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		one := make([]byte, 1)
		_, _ = os.Stdin.Read(one)
		cancel()
	}()
	return ctx
}

func group(arguments []string) {
	options := map[string]string{}
	for _, pair := range arguments[4:] {
		name, value, _ := strings.Cut(pair, "=")
		options[name] = value
	}
	topics := strings.Split(arguments[3], ",")
	opts := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(arguments[0], ",")...),
		kgo.ConsumerGroup(arguments[1]),
		kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.MetadataMaxAge(2 * time.Second),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(tells("assigned")),
		kgo.OnPartitionsRevoked(tells("revoked")),
		kgo.OnPartitionsLost(tells("lost")),
	}
	if strings.HasPrefix(arguments[3], "^") {
		opts = append(opts, kgo.ConsumeRegex())
	}
	if instance, ok := options["instance"]; ok {
		opts = append(opts, kgo.InstanceID(instance))
	}
	if arguments[2] == "consumer" {
		balancer := kgo.StickyBalancer()
		if options["assignor"] == "range" {
			balancer = kgo.RangeBalancer()
		}
		opts = append(opts, kgo.ServerSideBalancer(), kgo.Balancers(balancer))
	} else {
		opts = append(opts, kgo.SessionTimeout(10*time.Second), kgo.HeartbeatInterval(500*time.Millisecond))
		opts = append(opts, kgo.Balancers(kgo.RangeBalancer()))
	}
	ctx := untilTold()
	if out, ok := options["out"]; ok {
		copying(ctx, append(opts, kgo.TransactionalID(options["id"]), kgo.DefaultProduceTopic(out)))
		return
	}
	client, err := kgo.NewClient(opts...)
	fail(err)
	tell("started")
	for ctx.Err() == nil {
		poll, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		fetches := client.PollRecords(poll, 20)
		cancel()
		fetches.EachRecord(func(r *kgo.Record) {
			tell("record %s %d %d %s", r.Topic, r.Partition, r.Offset, r.Value)
		})
		if fetches.NumRecords() > 0 {
			if err := client.CommitRecords(context.Background(), fetches.Records()...); err != nil {
				tell("refused %v", err)
			}
		}
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
	tell("closed")
}

func copying(ctx context.Context, opts []kgo.Opt) {
	session, err := kgo.NewGroupTransactSession(append(opts, kgo.RequireStableFetchOffsets())...)
	fail(err)
	tell("started")
	for ctx.Err() == nil {
		poll, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		fetches := session.PollRecords(poll, 20)
		cancel()
		if fetches.NumRecords() == 0 {
			session.AllowRebalance()
			continue
		}
		fail(session.Begin())
		var copies []*kgo.Record
		fetches.EachRecord(func(r *kgo.Record) { copies = append(copies, &kgo.Record{Value: r.Value}) })
		err := session.ProduceSync(context.Background(), copies...).FirstErr()
		committed, failure := session.End(context.Background(), kgo.TransactionEndTry(err == nil))
		fail(failure)
		if !committed {
			tell("refused transaction")
		}
		session.AllowRebalance()
	}
	session.Close()
	tell("closed")
}

func verdict(r *kgo.Record) kgo.AckStatus {
	word, _, _ := strings.Cut(string(r.Value), "-")
	switch {
	case word == "poison", word == "release" && r.DeliveryCount() == 1:
		return kgo.AckRelease
	case word == "reject":
		return kgo.AckReject
	}
	return kgo.AckAccept
}

func renewed(ctx context.Context, client *kgo.Client, r *kgo.Record) {
	for range 8 {
		r.Ack(kgo.AckRenew)
		fail(client.FlushAcks(ctx))
		time.Sleep(time.Second)
	}
}

func share(arguments []string) {
	told := func(_ *kgo.Client, results kgo.ShareAckResults) {
		for _, result := range results {
			if result.Err != nil {
				tell("refused %s %d %v", result.Topic, result.Partition, result.Err)
			} else {
				tell("acked %s %d", result.Topic, result.Partition)
			}
		}
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(arguments[0], ",")...),
		kgo.ShareGroup(arguments[1]),
		kgo.ConsumeTopics(strings.Split(arguments[3], ",")...),
		kgo.ShareMaxRecords(10),
		kgo.ShareAckCallback(told),
		kgo.MetadataMaxAge(2*time.Second),
		kgo.MetadataMinAge(100*time.Millisecond),
	)
	fail(err)
	tell("started")
	ctx := untilTold()
	for ctx.Err() == nil {
		poll, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		fetches := client.PollRecords(poll, 10)
		cancel()
		fetches.EachRecord(func(r *kgo.Record) {
			tell("record %s %d %d %s %d", r.Topic, r.Partition, r.Offset, r.Value, r.DeliveryCount())
			if arguments[2] == "explicit" {
				if strings.HasPrefix(string(r.Value), "renew") {
					renewed(ctx, client, r)
				}
				if strings.HasPrefix(string(r.Value), "hold") && r.DeliveryCount() == 1 {
					time.Sleep(8 * time.Second)
				}
				r.Ack(verdict(r))
			}
		})
		if arguments[2] != "explicit" {
			client.MarkAcks(kgo.AckAccept)
		}
		fail(client.FlushAcks(context.Background()))
	}
	client.Close()
	tell("closed")
}

func main() {
	run := map[string]func([]string){"group": group, "share": share}[os.Args[1]]
	run(os.Args[2:])
}
