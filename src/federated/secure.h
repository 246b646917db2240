/* SPDX-License-Identifier: MIT
 *
 * Secure aggregation (Bonawitz et al. 2017): what a client and a coordinator share. An update is
 * added in integers modulo 2^64, to which each pair of members adds and subtracts one mask, and
 * each member one of its own. The masks are the key streams of ChaCha20.
 */
#ifndef RF_FEDERATED_SECURE_H
#define RF_FEDERATED_SECURE_H

#include "message.h"

enum {
    SECURE_PIECE = FEDERATED_PIECE / 2, /* values of 8 bytes of a message VALUES */
    /* Bits behind the point of a number in integers, and those of its range: with 255 members the
     * sum is below 2^63. Without weights a number is a parameter; with them it is a parameter or 1,
     * times the weight. */
    SECURE_BITS = 40,
    SECURE_BITS_WEIGHTED = 24,
    SECURE_RANGE_BITS = 55
};
#define SECURE_LEAST_WEIGHT 0x1p-8 /* or 0 */

/* RF_EINVAL: a threshold that makes no secure aggregation of these clients. 0: there is none. */
int federated_check_threshold(int threshold, int clients);

/* ---- numbers: fixed.c ------------------------------------------------------------------------ */

/* RF_EINVAL: a value, the weight, or a product of both is outside the range. */
int federated_fixed_check(const float *values, int64_t count, double weight, bool weighted);
/* Numbers `first` to first + n - 1 of the values times the weight, behind which is the weight
 * itself; rounded to the nearest. */
void federated_fixed(const float *values, int64_t count, double weight, bool weighted,
                     int64_t first, int64_t n, uint64_t *out);
double federated_fixed_number(uint64_t sum, bool weighted);

/* ---- masks: mask.c --------------------------------------------------------------------------- */

/* Adds (sign 1) or subtracts (-1) values `first`, a multiple of 8, to first + n - 1 of the mask.
 * n <= SECURE_PIECE. `stream`: room for n values. */
void federated_mask(const uint8_t seed[FEDERATED_KEY_BYTES], int sign, int64_t first, int64_t n,
                    uint64_t *stream, uint64_t *values);

/* A secret of two members and a round: the seed of their mask (purpose 'M', the public keys in the
 * order of the members), or the key of a box (purpose 'B', from the first to the second). false:
 * the other's key is none. */
bool federated_agree(char purpose, uint64_t run, int64_t round, const uint8_t *own_secret,
                     const uint8_t *other_public, const uint8_t *first_public,
                     const uint8_t *second_public, uint8_t out[FEDERATED_KEY_BYTES]);
/* Of a seed, which it does not tell. */
void federated_commit(const uint8_t seed[FEDERATED_KEY_BYTES], uint8_t out[32]);

/* ---- a client: secure_client.c, secure_reveal.c ------------------------------------------------
 */

struct secure_peer {
    char name[FEDERATED_NAME_BYTES];
    uint8_t key[FEDERATED_KEY_BYTES];
};

enum secure_step {
    SECURE_NONE,
    SECURE_READY,
    SECURE_SHARED,
    SECURE_MASKED,
    SECURE_CONFIRMED,
    SECURE_REVEALED
};

struct secure_client {
    char name[FEDERATED_NAME_BYTES];
    bool signs;
    uint8_t sign_secret[64], sign_public[FEDERATED_KEY_BYTES];
    struct secure_peer *peers; /* who may be a member; NULL: anybody */
    int peer_count, least;     /* the least threshold; 0: any */
    int threshold;             /* the coordinator's; 0: it has not said one */

    uint64_t run, spent_run; /* of the aggregation; whose update has been shared last */
    int64_t round, spent_round;
    enum secure_step step;
    uint8_t box_secret[32], box_public[32], mask_secret[32], mask_public[32], seed[32];
    int count, own;      /* members, and which of them this is */
    uint8_t members[32]; /* the hash of all names and keys */
    uint8_t shared[FEDERATED_SET_BYTES], uploaded[FEDERATED_SET_BYTES];
    char names[FEDERATED_MEMBERS][FEDERATED_NAME_BYTES];
    uint8_t box_keys[FEDERATED_MEMBERS][32], masks[FEDERATED_MEMBERS][32];
    /* This client's shares of each member's seed and secret key. */
    uint8_t seeds[FEDERATED_MEMBERS][32], secrets[FEDERATED_MEMBERS][32];
};

/* identity.c. What a client signs of a round, and whether it is signed by this key. */
void federated_sign(const struct secure_client *s, uint64_t run, int64_t round, uint8_t *keys);
bool federated_signed(const char *name, const uint8_t *public_key, uint64_t run, int64_t round,
                      const uint8_t *keys);
/* The same of the set of members whose updates are in the sum, and of all that it depends on. */
void federated_sign_set(const struct secure_client *s,
                        uint8_t signature[FEDERATED_SIGNATURE_BYTES]);
bool federated_signed_set(const struct secure_client *s, const uint8_t *public_key,
                          const uint8_t *signature);
/* The identity and the list of peers of the options. */
int federated_identify(struct secure_client *s, const struct rf_client_opts *opts);

/* SECURE has arrived. RF_EAUTH: its threshold is less than the client wants, or another one than
 * before. */
int federated_secure_begin(struct secure_client *s, int threshold);
/* Each of these makes the body of what is sent next, if it says so. All that a coordinator may not
 * do is RF_EAUTH, and the client ends; RF_ECORRUPT: out of order. READY: */
int federated_secure_ready(struct secure_client *s, uint64_t run, int64_t round, uint8_t *body);
/* PEERS has arrived; SHARES: */
int federated_secure_peers(struct secure_client *s, const struct federated_message *m,
                           uint8_t *body, size_t *bytes);
/* SHARES has arrived; MASKED is next, and its values are masked by federated_secure_mask. */
int federated_secure_shares(struct secure_client *s, const struct federated_message *m);
/* UNMASK has arrived; CONFIRM: */
int federated_secure_unmask(struct secure_client *s, const struct federated_message *m,
                            uint8_t *body, size_t *bytes);
/* AGREED has arrived; REVEAL: */
int federated_secure_agreed(struct secure_client *s, const struct federated_message *m,
                            uint8_t *body, size_t *bytes);
/* Whether a message of this aggregation is due. */
int federated_secure_expect(const struct secure_client *s, const struct federated_message *m,
                            enum secure_step step);
/* A set of members, all of `within`, if that is not NULL. RF_EAUTH: fewer than the threshold. */
int federated_secure_check_set(const struct secure_client *s, const uint8_t *set,
                               const uint8_t *within);
void federated_secure_mask(const struct secure_client *s, int64_t first, int64_t n,
                           uint64_t *stream, uint64_t *values);
/* Forgets all secrets of an aggregation. */
void federated_secure_forget(struct secure_client *s);

#endif
