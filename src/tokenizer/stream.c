/* SPDX-License-Identifier: MIT
 *
 * Incremental decoding of a sequence; see tokenizer.h. The text of a token may depend on the tokens
 * before it (the first space of a text is omitted). So each token is decoded together with the last
 * one that gave text, and the part beyond that one's own text is new. Bytes that may begin a
 * character are kept until it is complete.
 */
#include "../base/base.h"
#include "internal.h"
#include "utf8.h"

enum { KEEP = 32 };

struct rf_decoder {
    const struct rf_tokenizer *tokenizer;
    bool skip_special;
    int32_t ids[KEEP];   /* the last ids with text, and those after it without */
    size_t count, given; /* given: the number of ids given out */
    struct rf_text before, now, pending, out;
};

int rf_decoder_open(const struct rf_tokenizer *tokenizer, bool skip_special,
                    struct rf_decoder **out)
{
    if (!tokenizer || !out)
        return rf_fail(RF_EINVAL, "tokenizer: a tokenizer and a pointer for the result are needed");
    struct rf_decoder *decoder = rf_alloc(sizeof(*decoder));
    if (!decoder)
        return rf_fail(RF_ENOMEM, "tokenizer: out of memory for a decoder");
    decoder->tokenizer = tokenizer;
    decoder->skip_special = skip_special;
    *out = decoder;
    return 0;
}

void rf_decoder_close(struct rf_decoder *decoder)
{
    if (!decoder)
        return;
    rf_text_free(&decoder->before);
    rf_text_free(&decoder->now);
    rf_text_free(&decoder->pending);
    rf_text_free(&decoder->out);
    rf_free(decoder);
}

static int decode(struct rf_decoder *decoder, size_t count, struct rf_text *out)
{
    struct rf_work *work;
    out->count = 0;
    RETURN_IF_ERROR(rf_work_take(decoder->tokenizer, &work));
    const int rc =
        rf_decode(decoder->tokenizer, work, decoder->ids, count, decoder->skip_special, true, out);
    rf_work_give(decoder->tokenizer, work);
    return rc;
}

/* Appends the text that the last id adds to `pending`. */
static int advance(struct rf_decoder *decoder)
{
    RETURN_IF_ERROR(decode(decoder, decoder->given, &decoder->before));
    RETURN_IF_ERROR(decode(decoder, decoder->count, &decoder->now));
    const size_t before = decoder->before.count, now = decoder->now.count;
    size_t unused = 0;
    if (now > before) {
        RETURN_IF_ERROR(rf_text_add(&decoder->pending, decoder->now.bytes + before, now - before));
        unused = decoder->given;
        decoder->given = decoder->count - unused;
    } else if (decoder->count == KEEP) {
        unused =
            decoder->count - 1 - decoder->given; /* without text: the last one stands for all */
        memmove(decoder->ids + decoder->given, decoder->ids + decoder->count - 1,
                sizeof(*decoder->ids));
        decoder->count -= unused;
        return 0;
    }
    decoder->count -= unused;
    memmove(decoder->ids, decoder->ids + unused, decoder->count * sizeof(*decoder->ids));
    return 0;
}

/* Moves all but the last `kept` pending bytes to the output. */
static int give_out(struct rf_decoder *decoder, size_t kept, const char **text, size_t *bytes)
{
    struct rf_text *pending = &decoder->pending;
    const size_t ready = pending->count - kept;
    decoder->out.count = 0;
    RETURN_IF_ERROR(rf_utf8_add_lossy(&decoder->out, pending->bytes, ready));
    if (ready > 0)
        memmove(pending->bytes, pending->bytes + ready, kept);
    pending->count = kept;
    *text = decoder->out.bytes;
    *bytes = decoder->out.count;
    return 0;
}

int rf_decoder_next(struct rf_decoder *decoder, int32_t id, const char **text, size_t *bytes)
{
    if (!decoder || !text || !bytes)
        return rf_fail(RF_EINVAL, "tokenizer: a decoder and pointers for the result are needed");
    const struct rf_tokenizer *tokenizer = decoder->tokenizer;
    const bool nothing = !rf_tokenizer_token(tokenizer, id) ||
                         (decoder->skip_special && rf_tokenizer_is_special(tokenizer, id));
    if (!nothing)
        decoder->ids[decoder->count++] = id;
    const int rc = nothing ? 0 : advance(decoder);
    if (rc < 0) {
        decoder->count = decoder->given = 0;
        return rc;
    }
    return give_out(decoder, rf_utf8_incomplete(decoder->pending.bytes, decoder->pending.count),
                    text, bytes);
}

int rf_decoder_end(struct rf_decoder *decoder, const char **text, size_t *bytes)
{
    if (!decoder || !text || !bytes)
        return rf_fail(RF_EINVAL, "tokenizer: a decoder and pointers for the result are needed");
    decoder->count = decoder->given = 0;
    return give_out(decoder, 0, text, bytes);
}
