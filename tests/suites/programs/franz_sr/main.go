// franz-go's pkg/sr against a registry: every call of a registry's life, and its Serde. It prints
// one JSON line about what it saw.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/sr"
)

const schema = `{"type":"record","name":"Flight","namespace":"go","fields":[{"name":"carrier","type":"string"}]}`
const worse = `{"type":"record","name":"Flight","namespace":"go","fields":[{"name":"delay","type":"int"}]}`
const proto = `syntax = "proto3"; package go; message Flight { string carrier = 1; }`

type flight struct {
	Carrier string `json:"carrier"`
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func code(err error) int {
	var told *sr.ResponseError
	if errors.As(err, &told) {
		return told.ErrorCode
	}
	return 0
}

func main() {
	ctx := context.Background()
	client := must(sr.NewClient(sr.URLs(os.Args[1])))
	seen := map[string]any{}

	created := must(client.CreateSchema(ctx, "go-value", sr.Schema{Schema: schema}))
	seen["version"] = created.Version
	seen["lookup"] = must(client.LookupSchema(ctx, "go-value", sr.Schema{Schema: schema})).ID == created.ID
	seen["byID"] = must(client.SchemaByID(ctx, created.ID)).Schema == schema
	check := must(client.CheckCompatibility(ctx, "go-value", -1, sr.Schema{Schema: worse}))
	seen["compatible"] = check.Is
	_, err := client.CreateSchema(ctx, "go-value", sr.Schema{Schema: worse})
	seen["refused"] = code(err)
	levels := client.SetCompatibility(ctx, sr.SetCompatibility{Level: sr.CompatNone}, "go-value")
	must(levels[0], levels[0].Err)
	seen["taken"] = must(client.CreateSchema(ctx, "go-value", sr.Schema{Schema: worse})).Version
	kinds := must(client.SupportedTypes(ctx))
	seen["types"] = len(kinds)
	typed := must(client.CreateSchema(ctx, "go-proto", sr.Schema{Schema: proto, Type: sr.TypeProtobuf}))
	seen["protobuf"] = must(client.SchemaByID(ctx, typed.ID)).Type == sr.TypeProtobuf
	seen["deleted"] = must(client.DeleteSubject(ctx, "go-value", sr.SoftDelete))
	seen["gone"] = must(client.DeleteSubject(ctx, "go-value", sr.HardDelete))
	_, err = client.SchemaByVersion(ctx, "go-value", 1)
	seen["missing"] = code(err)

	serde := sr.NewSerde()
	serde.Register(created.ID, flight{}, sr.EncodeFn(json.Marshal), sr.DecodeFn(json.Unmarshal))
	var read flight
	blob := must(serde.Encode(flight{Carrier: "UA"}))
	if err := serde.Decode(blob, &read); err != nil {
		must(0, err)
	}
	seen["carrier"] = read.Carrier
	fmt.Println(string(must(json.Marshal(seen))))
}
