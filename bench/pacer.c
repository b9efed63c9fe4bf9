/* Stock librdkafka end to end at an even pace: how long from produce() to the consumer's poll().
 *
 *   pacer BOOTSTRAP TOPIC RECORDS_PER_S SECONDS SKIP_S VALUE_BYTES
 *
 * One producer (its own defaults but linger 0) and one consumer of partition 0, a thread each. In C,
 * so that what is timed are librdkafka and the server, not an interpreter's lock between the two
 * threads. The first SKIP_S are warm-up and not counted. Prints one line of JSON: records sent,
 * records counted, p50_us, p99_us, max_us. Exit 1 when records were lost, 2 for a wrong call.
 *
 * Linked with the librdkafka that the confluent-kafka wheel brings; its headers are not in the wheel,
 * so the few declarations needed stand here (rdkafka.h of 2.x; its ABI is stable). */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_topic_partition_list_s rd_kafka_topic_partition_list_t;
typedef struct {
    int err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *private;
} rd_kafka_message_t;
enum { RD_KAFKA_PRODUCER, RD_KAFKA_CONSUMER, RD_KAFKA_MSG_F_COPY = 2 };

rd_kafka_conf_t *rd_kafka_conf_new(void);
int rd_kafka_conf_set(rd_kafka_conf_t *, const char *, const char *, char *, size_t);
rd_kafka_t *rd_kafka_new(int, rd_kafka_conf_t *, char *, size_t);
rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *, const char *, void *);
int rd_kafka_produce(rd_kafka_topic_t *, int32_t, int, void *, size_t, const void *, size_t, void *);
int rd_kafka_poll(rd_kafka_t *, int);
int rd_kafka_flush(rd_kafka_t *, int);
rd_kafka_topic_partition_list_t *rd_kafka_topic_partition_list_new(int);
void *rd_kafka_topic_partition_list_add(rd_kafka_topic_partition_list_t *, const char *, int32_t);
int rd_kafka_topic_partition_list_set_offset(rd_kafka_topic_partition_list_t *, const char *, int32_t,
                                             int64_t);
int rd_kafka_assign(rd_kafka_t *, const rd_kafka_topic_partition_list_t *);
int rd_kafka_poll_set_consumer(rd_kafka_t *);
rd_kafka_message_t *rd_kafka_consumer_poll(rd_kafka_t *, int);
void rd_kafka_message_destroy(rd_kafka_message_t *);
int rd_kafka_consumer_close(rd_kafka_t *);

enum { POLL_MS = 50, LOSS_S = 30, READY_S = 120 };

static const char *bootstrap, *topic;
static double *latencies; /* in s, in order of arrival */
static long total;
static atomic_long taken;
static atomic_int ready, stopping;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void sleep_s(double seconds) {
    struct timespec t = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    if (seconds > 0) nanosleep(&t, NULL);
}

static void die(const char *what) { fprintf(stderr, "%s\n", what); exit(1); }

static rd_kafka_t *client(int type, const char *const settings[][2], size_t count) {
    char why[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (rd_kafka_conf_set(conf, "bootstrap.servers", bootstrap, why, sizeof why)) die(why);
    for (size_t i = 0; i < count; i++)
        if (rd_kafka_conf_set(conf, settings[i][0], settings[i][1], why, sizeof why)) die(why);
    rd_kafka_t *made = rd_kafka_new(type, conf, why, sizeof why);
    if (!made) die(why);
    return made;
}

/* Read partition 0 from its start. The record that was there before has no stamp: it says "ready". */
static void *consume(void *unused) {
    static const char *const settings[][2] = {
        {"group.id", "latency"}, {"enable.auto.commit", "false"}, {"fetch.wait.max.ms", "100"}};
    rd_kafka_t *consumer = client(RD_KAFKA_CONSUMER, settings, 3);
    rd_kafka_poll_set_consumer(consumer);
    rd_kafka_topic_partition_list_t *parts = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(parts, topic, 0);
    rd_kafka_topic_partition_list_set_offset(parts, topic, 0, 0);
    if (rd_kafka_assign(consumer, parts)) die("the consumer cannot be assigned the partition");
    while (!stopping) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(consumer, POLL_MS);
        if (!message) continue;
        if (!message->err) {
            double sent;
            if (ready && message->len >= sizeof sent && taken < total) {
                memcpy(&sent, message->payload, sizeof sent);
                latencies[taken] = now_s() - sent;
                taken++;
            }
            ready = 1;
        }
        rd_kafka_message_destroy(message);
    }
    rd_kafka_consumer_close(consumer);
    return unused;
}

static void send_at_pace(double records_per_s, size_t value_bytes) {
    static const char *const settings[][2] = {{"linger.ms", "0"}};
    rd_kafka_t *producer = client(RD_KAFKA_PRODUCER, settings, 1);
    rd_kafka_topic_t *to = rd_kafka_topic_new(producer, topic, NULL);
    char *value = calloc(1, value_bytes);
    double start = now_s();
    for (long sent = 0; sent < total;) {
        long due = (long)((now_s() - start) * records_per_s) + 1;
        for (; sent < due && sent < total; sent++) {
            double stamp = now_s();
            memcpy(value, &stamp, sizeof stamp);
            if (rd_kafka_produce(to, 0, RD_KAFKA_MSG_F_COPY, value, value_bytes, NULL, 0, NULL))
                die("a record was refused by the client");
        }
        rd_kafka_poll(producer, 0);
        sleep_s(start + sent / records_per_s - now_s());
    }
    if (rd_kafka_flush(producer, LOSS_S * 1000)) die("records were never acknowledged");
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc != 7) {
        fprintf(stderr, "usage: %s BOOTSTRAP TOPIC RECORDS_PER_S SECONDS SKIP_S VALUE_BYTES\n", *argv);
        return 2;
    }
    bootstrap = argv[1], topic = argv[2];
    double rate = atof(argv[3]), seconds = atof(argv[4]), skip_s = atof(argv[5]);
    long value_bytes = atol(argv[6]), skipped = (long)(rate * skip_s);
    total = (long)(rate * seconds);
    if (total <= skipped || skip_s < 0 || value_bytes < (long)sizeof(double)) {
        fprintf(stderr, "nothing to count, or no room for a stamp of 8 bytes\n");
        return 2;
    }
    latencies = calloc((size_t)total, sizeof *latencies);
    pthread_t consumer;
    if (pthread_create(&consumer, NULL, consume, NULL)) die("no thread");
    double start = now_s();
    for (; !ready; sleep_s(0.01))
        if (now_s() - start > READY_S) die("the consumer sees nothing of the topic");
    send_at_pace(rate, (size_t)value_bytes);
    for (start = now_s(); taken < total; sleep_s(0.01))
        if (now_s() - start > LOSS_S) die("records were acknowledged and never came back");
    stopping = 1;
    pthread_join(consumer, NULL);
    long counted = total - skipped;
    double *from = latencies + skipped;
    qsort(from, (size_t)counted, sizeof *from, by_size);
    printf("{\"sent\": %ld, \"counted\": %ld, \"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f}\n",
           total, counted, from[counted / 2] * 1e6, from[counted * 99 / 100] * 1e6,
           from[counted - 1] * 1e6);
    return 0;
}
