// The features of transactions with sarama: FEATURE BOOTSTRAP NAME.
// What each feature must do is written in tests/suites/client_features.py, which judges the result.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

const (
	records = 4
	quiet   = 5 * time.Second
)

type features struct {
	bootstrap []string
	name      string
}

func (f features) config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Net.MaxOpenRequests = 1
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	return config
}

func (f features) producer() (sarama.SyncProducer, error) {
	config := f.config()
	config.Producer.Transaction.ID = f.name + "-id"
	return sarama.NewSyncProducer(f.bootstrap, config)
}

func (f features) send(producer sarama.SyncProducer, values ...string) error {
	for _, value := range values {
		message := &sarama.ProducerMessage{Topic: f.name + "-out", Value: sarama.StringEncoder(value)}
		if _, _, err := producer.SendMessage(message); err != nil {
			return err
		}
	}
	return nil
}

func (f features) begun(producer sarama.SyncProducer, values ...string) error {
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	return f.send(producer, values...)
}

func (f features) commit() error {
	producer, err := f.producer()
	if err != nil {
		return err
	}
	defer producer.Close()
	for number := 0; number < 3; number++ {
		if err := f.begun(producer, fmt.Sprintf("committed-%d", number)); err != nil {
			return err
		}
		if err := producer.CommitTxn(); err != nil {
			return err
		}
	}
	return nil
}

func (f features) abort() error {
	producer, err := f.producer()
	if err != nil {
		return err
	}
	defer producer.Close()
	if err := f.begun(producer, "aborted-0", "aborted-1"); err != nil {
		return err
	}
	if err := producer.AbortTxn(); err != nil {
		return err
	}
	if err := f.begun(producer, "committed-0"); err != nil {
		return err
	}
	return producer.CommitTxn()
}

func (f features) fence() error {
	old, err := f.producer()
	if err != nil {
		return err
	}
	if err := f.begun(old, "aborted-0"); err != nil {
		return err
	}
	current, err := f.producer()
	if err != nil {
		return err
	}
	defer current.Close()
	if err := f.begun(current, "committed-0"); err != nil {
		return err
	}
	refusal := old.CommitTxn()
	if refusal == nil {
		return errors.New("the older producer could commit")
	}
	fmt.Printf("refused: %v\n", refusal)
	return current.CommitTxn()
}

type reader struct {
	values chan string
}

func (reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (r reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message := <-claim.Messages():
			r.values <- string(message.Value)
		case <-session.Context().Done():
			return nil
		}
	}
}

func (f features) offsets() error {
	group, err := sarama.NewConsumerGroup(f.bootstrap, f.name+"-group", f.config())
	if err != nil {
		return err
	}
	defer group.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	read := reader{make(chan string, records)}
	failed := make(chan error, 1)
	go func() { failed <- group.Consume(ctx, []string{f.name + "-in"}, read) }()
	var values []string
	for len(values) < records {
		select {
		case value := <-read.values:
			values = append(values, "copied-"+value)
		case err := <-failed:
			return fmt.Errorf("the consumer ended: %w", err)
		}
	}
	producer, err := f.producer()
	if err != nil {
		return err
	}
	defer producer.Close()
	positions := func(offset int64) map[string][]*sarama.PartitionOffsetMetadata {
		return map[string][]*sarama.PartitionOffsetMetadata{
			f.name + "-in": {{Partition: 0, Offset: offset, LeaderEpoch: -1}},
		}
	}
	if err := f.begun(producer, values...); err != nil {
		return err
	}
	if err := producer.AddOffsetsToTxn(positions(records), f.name+"-group"); err != nil {
		return err
	}
	if err := producer.CommitTxn(); err != nil {
		return err
	}
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	if err := producer.AddOffsetsToTxn(positions(1), f.name+"-group"); err != nil {
		return err
	}
	return producer.AbortTxn()
}

func (f features) read() error {
	consumer, err := sarama.NewConsumer(f.bootstrap, f.config())
	if err != nil {
		return err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(f.name+"-out", 0, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	for {
		select {
		case message := <-partition.Messages():
			fmt.Println(string(message.Value))
		case <-time.After(quiet):
			return nil
		}
	}
}

func main() {
	f := features{strings.Split(os.Args[2], ","), os.Args[3]}
	run := map[string]func() error{
		"commit": f.commit, "abort": f.abort, "fence": f.fence, "offsets": f.offsets, "read": f.read,
	}[os.Args[1]]
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
