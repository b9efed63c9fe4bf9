/* Sends prepared request frames (Produce or Fetch) over and over and counts the replies: a load
 * generator that costs little, so that the server is the bound.
 *
 *   blaster [-s SESSION_AT:REPLY_AT] PORT CONNECTIONS IN_FLIGHT SECONDS ERROR_AT FRAME_FILE...
 *
 * Connection i repeats frame i modulo the number of files. ERROR_AT is the byte of the reply (after
 * its length prefix) that starts the int16 error code; every reply is checked. Prints one line of
 * JSON: requests, errors, seconds, bytes sent and received.
 *
 * -s: each connection holds an incremental fetch session (KIP-227). The files come in pairs: a full
 * fetch that opens the session, and the incremental fetch that is repeated. SESSION_AT is the byte
 * of the second (its length prefix included) that starts session id and epoch, which are filled in;
 * REPLY_AT is the byte of the reply (after its length prefix) that starts the session id. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 20, HEAD_BYTES_MAX = 512, EVENTS_MAX = 64, FILES_MAX = 64 };

struct frame { char *bytes; size_t size; };
struct connection {
    int fd, in_flight;
    struct frame *frame, *incremental; /* incremental: what follows the frame that opens a session */
    uint32_t epoch;
    size_t sent, have, left; /* have: bytes of this reply's head; left: what follows the head */
    unsigned char head[HEAD_BYTES_MAX];
};

static long requests, errors;
static long long bytes_sent, bytes_received;
static unsigned char scratch[READ_BYTES];
static size_t session_at, reply_at; /* both 0: no sessions */

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void die(const char *what) { perror(what); exit(1); }

static struct frame load(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) die(path);
    fseek(f, 0, SEEK_END);
    struct frame frame = {NULL, (size_t)ftell(f)};
    rewind(f);
    frame.bytes = malloc(frame.size);
    if (fread(frame.bytes, 1, frame.size, f) != frame.size) die(path);
    fclose(f);
    return frame;
}

static int dial(int port) {
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd, (struct sockaddr *)&to, sizeof to)) die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

/* A session of its own for this connection: the id of the reply to its full fetch. */
static void open_session(struct connection *c) {
    struct frame *own = malloc(sizeof *own);
    own->size = c->incremental->size;
    own->bytes = malloc(own->size);
    memcpy(own->bytes, c->incremental->bytes, own->size);
    memcpy(own->bytes + session_at, c->head + 4 + reply_at, 4);
    uint32_t id;
    memcpy(&id, own->bytes + session_at, 4);
    if (!id) { fprintf(stderr, "the server opened no fetch session\n"); exit(1); }
    c->frame = own;
    c->incremental = NULL;
    c->epoch = 1;
}

static void end_reply(struct connection *c) {
    requests++;
    c->in_flight--;
    bytes_sent += c->frame->size;
    c->have = 0;
    if (c->incremental) open_session(c);
}

/* Walk over `count` bytes of replies: keep each one's head up to its error code, skip the rest. */
static void take(struct connection *c, const unsigned char *from, size_t count, size_t error_at) {
    size_t head = 4 + error_at + 2;
    bytes_received += (long long)count;
    while (count) {
        size_t part = c->have < head ? head - c->have : c->left;
        if (part > count) part = count;
        if (c->have < head) {
            memcpy(c->head + c->have, from, part);
            c->have += part;
            if (c->have == head) {
                uint32_t size;
                memcpy(&size, c->head, 4);
                size = ntohl(size);
                if (size + 4 < head) { fprintf(stderr, "reply of %u bytes\n", size); exit(1); }
                if (c->head[head - 2] || c->head[head - 1]) errors++;
                c->left = size + 4 - head;
                if (!c->left) end_reply(c);
            }
        } else {
            c->left -= part;
            if (!c->left) end_reply(c);
        }
        from += part;
        count -= part;
    }
}

static void receive(struct connection *c, size_t error_at) {
    for (;;) {
        ssize_t n = read(c->fd, scratch, sizeof scratch);
        if (n == 0) { fprintf(stderr, "the server closed the connection\n"); exit(1); }
        if (n < 0) { if (errno == EAGAIN) return; die("read"); }
        take(c, scratch, (size_t)n, error_at);
    }
}

static void send_more(struct connection *c, int in_flight_max) {
    if (c->incremental) in_flight_max = 1;
    while (c->in_flight < in_flight_max) {
        if (c->epoch && !c->sent) {
            uint32_t epoch = htonl(c->epoch++);
            memcpy(c->frame->bytes + session_at + 4, &epoch, 4);
        }
        ssize_t n = write(c->fd, c->frame->bytes + c->sent, c->frame->size - c->sent);
        if (n < 0) { if (errno == EAGAIN) return; die("write"); }
        c->sent += (size_t)n;
        if (c->sent == c->frame->size) { c->sent = 0; c->in_flight++; }
    }
}

int main(int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[1], "-s")) {
        if (sscanf(argv[2], "%zu:%zu", &session_at, &reply_at) != 2) argc = 0;
        argc -= 2;
        argv[2] = argv[0];
        argv += 2;
    }
    if (argc < 7 || argc - 6 > FILES_MAX) {
        fprintf(stderr, "usage: %s [-s SESSION_AT:REPLY_AT] PORT CONNECTIONS IN_FLIGHT SECONDS ERROR_AT "
                        "FRAME...\n", argv[0]);
        return 2;
    }
    int port = atoi(argv[1]), count = atoi(argv[2]), in_flight = atoi(argv[3]), files = argc - 6;
    double seconds = atof(argv[4]);
    size_t error_at = (size_t)atoi(argv[5]);
    if (error_at + 6 > HEAD_BYTES_MAX) { fprintf(stderr, "ERROR_AT too large\n"); return 2; }
    if (session_at && (files % 2 || reply_at + 4 > error_at)) {
        fprintf(stderr, "sessions: pairs of frames, and REPLY_AT before ERROR_AT\n");
        return 2;
    }
    struct frame frames[FILES_MAX];
    for (int i = 0; i < files; i++) frames[i] = load(argv[6 + i]);
    struct connection *all = calloc((size_t)count, sizeof *all);
    int poll = epoll_create1(0);
    for (int i = 0; i < count; i++) {
        all[i].fd = dial(port);
        all[i].frame = &frames[session_at ? 2 * i % files : i % files];
        if (session_at) {
            all[i].incremental = all[i].frame + 1;
            if (all[i].incremental->size < session_at + 8) return 2;
        }
        struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = &all[i]};
        if (epoll_ctl(poll, EPOLL_CTL_ADD, all[i].fd, &e)) die("epoll_ctl");
    }
    double start = now_s(), now = start;
    while ((now = now_s()) - start < seconds) {
        struct epoll_event ready[EVENTS_MAX];
        int n = epoll_wait(poll, ready, EVENTS_MAX, 100);
        for (int i = 0; i < n; i++) {
            receive(ready[i].data.ptr, error_at);
            send_more(ready[i].data.ptr, in_flight);
        }
    }
    printf("{\"requests\": %ld, \"errors\": %ld, \"seconds\": %.6f, \"bytes\": %lld, "
           "\"received\": %lld}\n", requests, errors, now - start, bytes_sent, bytes_received);
    return errors ? 1 : 0;
}
