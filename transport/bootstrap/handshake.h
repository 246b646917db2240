/* SPDX-License-Identifier: MIT
 *
 * Proof that both ends of a connection hold the job key, without sending it: a nonce from each, and
 * an HMAC over both, bound to the protocol version, the job, the joiner's rank and the world's
 * size. The joiner proves first, so that a foreign connection gets no material for guessing keys.
 * The clients of a coordinator (ringforge/federated.h) have a name and a key each, and no rank: the
 * name travels in the hello, and is part of what is proved.
 */
#ifndef RF_TRANSPORT_HANDSHAKE_H
#define RF_TRANSPORT_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RF_NONCE_BYTES = 32,
    RF_PROOF_BYTES = 32,
    RF_JOB_BYTES = 16,
    RF_HELLO_BYTES = 44,
    RF_NAME_BYTES = 63 /* of a client's name, at most */
};
/* Set in the rank of a joiner that declines, and gives its reason after the welcome. */
#define RF_HELLO_DECLINES 0x80000000u

struct rf_job_key {
    bool present;    /* false: everybody has the same empty key, and only loopback is allowed */
    uint8_t key[32]; /* derived from the text */
    uint8_t job[RF_JOB_BYTES]; /* identifies one run, if the URL can carry it; else zero */
};

struct rf_handshake {
    uint32_t version, rank, size;
    uint8_t joiner[RF_NONCE_BYTES], listener[RF_NONCE_BYTES];
    char name[RF_NAME_BYTES + 1]; /* of a client; empty: a rank */
};

/* text may be NULL or empty: no key. */
int rf_job_key_init(struct rf_job_key *key, const char *text);
void rf_random(void *out, size_t bytes);
void rf_handshake_hello(const struct rf_handshake *h, uint8_t out[RF_HELLO_BYTES]);
void rf_handshake_read_hello(struct rf_handshake *h, const uint8_t in[RF_HELLO_BYTES]);
/* role: 'J' for the joiner's proof, 'H' for rank 0's. */
void rf_handshake_prove(const struct rf_job_key *key, const struct rf_handshake *h, char role,
                        uint8_t out[RF_PROOF_BYTES]);
bool rf_handshake_check(const struct rf_job_key *key, const struct rf_handshake *h, char role,
                        const uint8_t proof[RF_PROOF_BYTES]);

/* Whether a text of `bytes` characters can be a client's name: letters, digits, '.', '-', '_'. */
bool rf_handshake_is_name(const char *text, size_t bytes);
/* A key for what follows the handshake, which depends on both nonces: another one for each role. */
void rf_handshake_derive(const struct rf_job_key *key, const struct rf_handshake *h, char role,
                         uint8_t out[32]);

#endif
