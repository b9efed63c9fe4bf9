// The features of transactions with franz-go: FEATURE BOOTSTRAP NAME.
// What each feature must do is written in tests/suites/client_features.py, which judges the result.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	records = 4
	quiet   = 5 * time.Second
	limit   = 90 * time.Second
)

type features struct {
	bootstrap []string
	name      string
}

func (f features) options(more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{
		kgo.SeedBrokers(f.bootstrap...),
		kgo.DefaultProduceTopic(f.name + "-out"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}, more...)
}

func (f features) producer() (*kgo.Client, error) {
	return kgo.NewClient(f.options(kgo.TransactionalID(f.name + "-id"))...)
}

func send(ctx context.Context, client interface {
	ProduceSync(context.Context, ...*kgo.Record) kgo.ProduceResults
}, values ...string) error {
	var rows []*kgo.Record
	for _, value := range values {
		rows = append(rows, &kgo.Record{Value: []byte(value), Partition: 0})
	}
	return client.ProduceSync(ctx, rows...).FirstErr()
}

func transaction(ctx context.Context, client *kgo.Client, end kgo.TransactionEndTry, values ...string) error {
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	if err := send(ctx, client, values...); err != nil {
		return err
	}
	return client.EndTransaction(ctx, end)
}

func (f features) commit(ctx context.Context) error {
	client, err := f.producer()
	if err != nil {
		return err
	}
	defer client.Close()
	for number := 0; number < 3; number++ {
		if err := transaction(ctx, client, kgo.TryCommit, fmt.Sprintf("committed-%d", number)); err != nil {
			return err
		}
	}
	return nil
}

func (f features) abort(ctx context.Context) error {
	client, err := f.producer()
	if err != nil {
		return err
	}
	defer client.Close()
	if err := transaction(ctx, client, kgo.TryAbort, "aborted-0", "aborted-1"); err != nil {
		return err
	}
	return transaction(ctx, client, kgo.TryCommit, "committed-0")
}

func (f features) fence(ctx context.Context) error {
	old, err := f.producer()
	if err != nil {
		return err
	}
	defer old.Close()
	if err := old.BeginTransaction(); err != nil {
		return err
	}
	if err := send(ctx, old, "aborted-0"); err != nil {
		return err
	}
	current, err := f.producer()
	if err != nil {
		return err
	}
	defer current.Close()
	if err := current.BeginTransaction(); err != nil {
		return err
	}
	if err := send(ctx, current, "committed-0"); err != nil {
		return err
	}
	refusal := old.EndTransaction(ctx, kgo.TryCommit)
	if refusal == nil {
		return errors.New("the older producer could commit")
	}
	fmt.Printf("refused: %v\n", refusal)
	return current.EndTransaction(ctx, kgo.TryCommit)
}

func (f features) offsets(ctx context.Context) error {
	session, err := kgo.NewGroupTransactSession(f.options(
		kgo.TransactionalID(f.name+"-id"),
		kgo.ConsumerGroup(f.name+"-group"),
		kgo.ConsumeTopics(f.name+"-in"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
	)...)
	if err != nil {
		return err
	}
	defer session.Close()
	copied := 0
	for copied < records {
		fetches := session.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		if err := session.Begin(); err != nil {
			return err
		}
		var values []string
		fetches.EachRecord(func(record *kgo.Record) {
			values = append(values, "copied-"+string(record.Value))
		})
		if err := send(ctx, session, values...); err != nil {
			return err
		}
		committed, err := session.End(ctx, kgo.TryCommit)
		if err != nil {
			return err
		}
		if !committed {
			return errors.New("the session aborted its transaction")
		}
		copied += len(values)
	}
	// A second transaction, aborted: the session goes back, and the group's offset stays.
	if err := session.Begin(); err != nil {
		return err
	}
	if err := send(ctx, session, "aborted-0"); err != nil {
		return err
	}
	_, err = session.End(ctx, kgo.TryAbort)
	return err
}

func (f features) read(ctx context.Context) error {
	client, err := kgo.NewClient(f.options(
		kgo.ConsumeTopics(f.name+"-out"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)...)
	if err != nil {
		return err
	}
	defer client.Close()
	last := time.Now()
	for time.Since(last) < quiet {
		poll, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		fetches := client.PollFetches(poll)
		cancel()
		fetches.EachRecord(func(record *kgo.Record) {
			fmt.Println(string(record.Value))
			last = time.Now()
		})
	}
	return nil
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	f := features{strings.Split(os.Args[2], ","), os.Args[3]}
	run := map[string]func(context.Context) error{
		"commit": f.commit, "abort": f.abort, "fence": f.fence, "offsets": f.offsets, "read": f.read,
	}[os.Args[1]]
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
