/* TLS 1.3 with blocking sockets and OpenSSL: `tls receive|send SIZE COUNT DIRECTORY`; a byte acknowledges each message. */

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PORT = 9977, WINDOW = 8 };

static void must(int good, const char *what) {
    if (!good) {
        fprintf(stderr, "%s failed\n", what);
        exit(1);
    }
}

static SSL *secured(int sock, const char *directory, int server) {
    char path[4096];
    int one = 1;
    setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    SSL_CTX *context = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    snprintf(path, sizeof path, "%s/ca.pem", directory);
    must(SSL_CTX_load_verify_locations(context, path, NULL) == 1, "the authority");
    snprintf(path, sizeof path, "%s/node.pem", directory);
    must(SSL_CTX_use_certificate_chain_file(context, path) == 1, "the certificate");
    snprintf(path, sizeof path, "%s/node.key", directory);
    must(SSL_CTX_use_PrivateKey_file(context, path, SSL_FILETYPE_PEM) == 1, "the key");
    SSL *ssl = SSL_new(context);
    SSL_set_fd(ssl, sock);
    must((server ? SSL_accept(ssl) : SSL_connect(ssl)) == 1, "the handshake");
    return ssl;
}

static void receive(int size, const char *directory) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    must(!bind(listener, (struct sockaddr *)&at, sizeof at) && !listen(listener, 1), "listening");
    puts("ready");
    fflush(stdout);
    SSL *ssl = secured(accept(listener, NULL, NULL), directory, 1);
    char *data = malloc(size);
    for (;;) {
        for (int at = 0; at < size;) {
            int got = SSL_read(ssl, data + at, size - at);
            if (got <= 0)
                return;
            at += got;
        }
        must(SSL_write(ssl, "a", 1) == 1, "the acknowledgement");
    }
}

static void transmit(int size, int count, const char *directory) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    struct timespec began, ended;
    char acks[WINDOW];
    int sock = socket(AF_INET, SOCK_STREAM, 0), out = 0;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    must(!connect(sock, (struct sockaddr *)&at, sizeof at), "connecting");
    SSL *ssl = secured(sock, directory, 0);
    char *data = calloc(1, size);
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (int number = 0; number < count; number++) {
        must(SSL_write(ssl, data, size) == size, "sending");
        out++;
        while (out >= WINDOW) {
            int got = SSL_read(ssl, acks, out);
            must(got > 0, "hearing");
            out -= got;
        }
    }
    while (out) {
        int got = SSL_read(ssl, acks, out);
        must(got > 0, "hearing");
        out -= got;
    }
    clock_gettime(CLOCK_MONOTONIC, &ended);
    printf("%.9f\n", ended.tv_sec - began.tv_sec + (ended.tv_nsec - began.tv_nsec) * 1e-9);
}

int main(int argc, char **argv) {
    must(argc == 5, "the command line");
    if (!strcmp(argv[1], "receive")) {
        receive(atoi(argv[2]), argv[4]);
    } else {
        getchar();
        transmit(atoi(argv[2]), atoi(argv[3]), argv[4]);
    }
    return 0;
}
