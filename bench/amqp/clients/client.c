/* The yardstick: librabbitmq, as fast as it goes without writing frames by hand.
 *
 * Publishes and acks that can go together do: the socket is corked while there is input to work on, and acks (and, in
 * W4, the acks that follow confirms) are sent with `multiple` over the contiguous prefix of messages that have their
 * outcome. The contract is that of contract.py; W3 is left out: it measures the broker's dead-lettering.
 */

#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CHANNEL = 1, LIFE_S_MAX = 120, LINGER_US = 500000, PERSISTENT = 2, FRAME_MAX = 131072 };

struct a_case {
    const char *workload, *source, *target, *body;
    char *url;
    long messages, window, prefetch;
};

/* The publishes or deliveries that have their outcome: all up to `prefix`, and those marked after it. */
struct settled {
    unsigned char *marks;
    long prefix, total;
};

static amqp_connection_state_t connection;
static double started;

static void fail(const char *what, const char *detail)
{
    fprintf(stderr, "client.c: %s%s%s\n", what, detail[0] == '\0' ? "" : ": ", detail);
    exit(1);
}

static void check_status(const char *what, int status)
{
    if (status != AMQP_STATUS_OK)
        fail(what, amqp_error_string2(status));
}

static void check_reply(const char *what)
{
    amqp_rpc_reply_t reply = amqp_get_rpc_reply(connection);
    if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION)
        fail(what, amqp_error_string2(reply.library_error));
    if (reply.reply_type != AMQP_RESPONSE_NORMAL)
        fail(what, "refused by the broker");
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void begin(void)
{
    if (started == 0)
        started = now();
}

/* While corked, the kernel joins what is written into full segments; letting go sends the rest at once. */
static void cork(int on)
{
    static int corked = 0;
    if (on == corked)
        return;
    corked = on;
    setsockopt(amqp_get_sockfd(connection), IPPROTO_TCP, TCP_CORK, &on, sizeof on);
}

static int has_input(void)
{
    return amqp_frames_enqueued(connection) || amqp_data_in_buffer(connection);
}

static amqp_frame_t read_frame(void)
{
    amqp_frame_t frame;
    check_status("read", amqp_simple_wait_frame(connection, &frame));
    return frame;
}

static void settle(struct settled *settled, long tag, int multiple)
{
    if (!multiple)
        settled->marks[tag] = 1;
    while (settled->prefix < settled->total && (settled->marks[settled->prefix + 1] || (multiple && settled->prefix < tag)))
        settled->prefix++;
}

/* A confirm, or the end of the run: anything else that is not a delivery says that something went wrong. */
static void receive_confirm(struct settled *settled, const amqp_frame_t *frame)
{
    if (frame->frame_type != AMQP_FRAME_METHOD)
        return;
    if (frame->payload.method.id != AMQP_BASIC_ACK_METHOD)
        fail("unexpected method", amqp_method_name(frame->payload.method.id));
    const amqp_basic_ack_t *ack = frame->payload.method.decoded;
    settle(settled, (long)ack->delivery_tag, ack->multiple);
}

static void publish(const char *queue, int mandatory, const amqp_basic_properties_t *properties, amqp_bytes_t body)
{
    check_status("publish", amqp_basic_publish(connection, CHANNEL, amqp_empty_bytes, amqp_cstring_bytes(queue), mandatory,
                                               0, properties, body));
}

static void ack_up_to(long tag)
{
    check_status("ack", amqp_basic_ack(connection, CHANNEL, (uint64_t)tag, 1));
}

static void run_publish(const struct a_case *a_case)
{
    struct settled settled = {calloc((size_t)a_case->messages + 2, 1), 0, a_case->messages};
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG,
                                          .content_type = amqp_cstring_bytes("application/json"),
                                          .delivery_mode = PERSISTENT};
    amqp_bytes_t body = amqp_cstring_bytes(a_case->body);
    long sent = 0;
    begin();
    while (settled.prefix < a_case->messages) {
        cork(1);
        for (; sent < a_case->messages && sent - settled.prefix < a_case->window; sent++)
            publish(a_case->source, 0, &properties, body);
        cork(0);
        do {
            amqp_frame_t frame = read_frame();
            receive_confirm(&settled, &frame);
            amqp_maybe_release_buffers(connection);
        } while (has_input());
    }
    free(settled.marks);
}

static void start_consumer(const struct a_case *a_case)
{
    amqp_basic_qos(connection, CHANNEL, 0, (uint16_t)a_case->prefetch, 0);
    check_reply("qos");
    amqp_basic_consume(connection, CHANNEL, amqp_cstring_bytes(a_case->source), amqp_empty_bytes, 0, 0, 0, amqp_empty_table);
    check_reply("consume");
}

/* The content that follows a delivery; small bodies come in one frame, and the memory is good until the next release. */
static amqp_basic_properties_t *read_content(amqp_bytes_t *body)
{
    amqp_frame_t header = read_frame();
    if (header.frame_type != AMQP_FRAME_HEADER)
        fail("expected a content header", "");
    amqp_frame_t content = read_frame();
    if (content.frame_type != AMQP_FRAME_BODY || content.payload.body_fragment.len != header.payload.properties.body_size)
        fail("expected a body in one frame", "");
    *body = content.payload.body_fragment;
    return header.payload.properties.decoded;
}

static int is_delivery(const amqp_frame_t *frame)
{
    return frame->frame_type == AMQP_FRAME_METHOD && frame->payload.method.id == AMQP_BASIC_DELIVER_METHOD;
}

static void run_consume(const struct a_case *a_case)
{
    long handled = 0, acked = 0, batch = a_case->prefetch / 4;
    start_consumer(a_case);
    while (acked < a_case->messages) {
        amqp_frame_t frame = read_frame();
        if (!is_delivery(&frame))
            fail("expected a delivery", "");
        begin();
        amqp_bytes_t body;
        read_content(&body);
        handled++; /* delivery tags count from 1, so this is the message's own */
        if (handled - acked >= batch || !has_input()) {
            ack_up_to(handled);
            acked = handled;
        }
        amqp_maybe_release_buffers(connection);
    }
}

static void run_move(const struct a_case *a_case)
{
    /* One publish for each delivery, in order: the n-th confirm belongs to the n-th delivery. */
    struct settled settled = {calloc((size_t)a_case->messages + 2, 1), 0, a_case->messages};
    long acked = 0, batch = a_case->prefetch / 4;
    start_consumer(a_case);
    while (acked < a_case->messages) {
        amqp_frame_t frame = read_frame();
        if (is_delivery(&frame)) {
            begin();
            amqp_bytes_t body;
            amqp_basic_properties_t *properties = read_content(&body);
            publish(a_case->target, 1, properties, body);
        } else {
            receive_confirm(&settled, &frame);
        }
        amqp_maybe_release_buffers(connection);
        int idle = !has_input();
        if (settled.prefix > acked && (idle || settled.prefix - acked >= batch)) {
            ack_up_to(settled.prefix);
            acked = settled.prefix;
        }
        cork(!idle);
    }
    free(settled.marks);
}

static void open_connection(char *url)
{
    struct amqp_connection_info info;
    amqp_default_connection_info(&info);
    check_status("url", amqp_parse_url(url, &info));
    connection = amqp_new_connection();
    check_status("connect", amqp_socket_open(amqp_tcp_socket_new(connection), info.host, info.port));
    amqp_rpc_reply_t reply =
        amqp_login(connection, info.vhost, 0, FRAME_MAX, 0, AMQP_SASL_METHOD_PLAIN, info.user, info.password);
    if (reply.reply_type != AMQP_RESPONSE_NORMAL)
        fail("login", "refused");
    amqp_channel_open(connection, CHANNEL);
    check_reply("channel");
}

static void close_connection(void)
{
    cork(0);
    if (amqp_channel_close(connection, CHANNEL, AMQP_REPLY_SUCCESS).reply_type != AMQP_RESPONSE_NORMAL)
        fail("close", "the channel was not open any more");
    amqp_connection_close(connection, AMQP_REPLY_SUCCESS);
    amqp_destroy_connection(connection);
}

int main(int count, char **arguments)
{
    if (count != 9)
        fail("usage", "PROGRAM WORKLOAD URL MESSAGES SOURCE TARGET WINDOW PREFETCH BODY");
    struct a_case a_case = {.workload = arguments[1], .url = arguments[2], .messages = atol(arguments[3]),
                            .source = arguments[4],   .target = arguments[5], .window = atol(arguments[6]),
                            .prefetch = atol(arguments[7]), .body = arguments[8]};
    alarm(LIFE_S_MAX);
    open_connection(a_case.url);
    if (strcmp(a_case.workload, "W2") != 0) {
        amqp_confirm_select(connection, CHANNEL);
        check_reply("confirm");
    }
    if (strcmp(a_case.workload, "W1") == 0)
        run_publish(&a_case);
    else if (strcmp(a_case.workload, "W2") == 0)
        run_consume(&a_case);
    else if (strcmp(a_case.workload, "W4") == 0)
        run_move(&a_case);
    else if (strcmp(a_case.workload, "W0") != 0)
        fail("no such workload", a_case.workload);
    double seconds = started == 0 ? 0 : now() - started;
    if (strcmp(a_case.workload, "W2") == 0 || strcmp(a_case.workload, "W4") == 0)
        usleep(LINGER_US);
    close_connection();
    printf("{\"seconds\": %.6f, \"messages\": %ld, \"library\": \"librabbitmq %s\"}\n", seconds, a_case.messages, amqp_version());
    return 0;
}
