// A login with franz-go, one record written and read: FILE with the login.
// What its fields are is written in tests/suites/mechanism_clients.py.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/kerberos"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const (
	limit        = 20 * time.Second
	refusedLimit = 6 * time.Second
)

type login struct {
	Bootstrap, Mechanism, Username, Password, Token string
	Authority, Certificate, Key                     string
	Keytab, Krb5, Realm                             string
	Topic, Value, Group                             string
	IsWelcome                                       bool `json:"is_welcome"`
}

func (l login) tls() (*tls.Config, error) {
	pem, err := os.ReadFile(l.Authority)
	if err != nil {
		return nil, err
	}
	made := &tls.Config{RootCAs: x509.NewCertPool()}
	made.RootCAs.AppendCertsFromPEM(pem)
	if l.Mechanism == "mTLS" {
		pair, err := tls.LoadX509KeyPair(l.Certificate, l.Key)
		if err != nil {
			return nil, err
		}
		made.Certificates = []tls.Certificate{pair}
	}
	return made, nil
}

func (l login) mechanism() (sasl.Mechanism, error) {
	switch l.Mechanism {
	case "PLAIN":
		return plain.Auth{User: l.Username, Pass: l.Password}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: l.Username, Pass: l.Password}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: l.Username, Pass: l.Password}.AsSha512Mechanism(), nil
	case "OAUTHBEARER":
		return oauth.Auth{Token: l.Token}.AsMechanism(), nil
	case "GSSAPI":
		table, err := keytab.Load(l.Keytab)
		if err != nil {
			return nil, err
		}
		realms, err := config.Load(l.Krb5)
		if err != nil {
			return nil, err
		}
		user := client.NewWithKeytab(l.Username, l.Realm, table, realms, client.DisablePAFXFAST(true))
		return kerberos.Auth{Client: user, Service: "kafka"}.AsMechanismWithClose(), nil
	}
	return nil, errors.New("no such mechanism: " + l.Mechanism)
}

func (l login) options() ([]kgo.Opt, error) {
	secured, err := l.tls()
	if err != nil {
		return nil, err
	}
	made := []kgo.Opt{
		kgo.SeedBrokers(l.Bootstrap),
		kgo.DialTLSConfig(secured),
		kgo.ConsumeTopics(l.Topic),
		kgo.ConsumerGroup(l.Group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if l.Mechanism == "mTLS" {
		return made, nil
	}
	mechanism, err := l.mechanism()
	return append(made, kgo.SASL(mechanism)), err
}

func (l login) run(ctx context.Context) error {
	options, err := l.options()
	if err != nil {
		return err
	}
	session, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer session.Close()
	record := &kgo.Record{Topic: l.Topic, Value: []byte(l.Value)}
	if err := session.ProduceSync(ctx, record).FirstErr(); err != nil {
		return err
	}
	for seen := ""; seen != l.Value; {
		fetches := session.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			if string(record.Value) == l.Value {
				seen = l.Value
			}
		})
	}
	fmt.Println(l.Value)
	return nil
}

func main() {
	text, err := os.ReadFile(os.Args[1])
	l := login{}
	if err == nil {
		err = json.Unmarshal(text, &l)
	}
	if err == nil {
		most := limit
		if !l.IsWelcome {
			most = refusedLimit
		}
		ctx, cancel := context.WithTimeout(context.Background(), most)
		defer cancel()
		err = l.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
