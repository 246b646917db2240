// SPDX-License-Identifier: MIT
//
// Secure aggregation, its parts: shares, numbers, and what a client refuses to do for a coordinator
// that does not follow the rules.
#include "training.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <random>

extern "C" {
#include "base/base.h"
#include "federated/secure.h"
#include "federated/shamir.h"
}

using namespace federated;

namespace
{

using Bytes = std::vector<uint8_t>;

federated_message message(rf_federated_message kind, const Bytes &body)
{
    federated_message m = {};
    m.kind = kind;
    m.run = 7;
    m.round = 3;
    m.body = body.data();
    m.body_bytes = body.size();
    return m;
}

/* Clients a, b, c, ..., whose messages this test carries as a coordinator would. */
struct Members {
    explicit Members(int count, int threshold, bool signs = false)
    {
        std::vector<rf_federated_client_key> peers;
        for (int k = 0; k < count; k++) {
            names.push_back(std::string(1, static_cast<char>('a' + k)));
            char identity[65];
            EXPECT_EQ(rf_client_identity(("secret " + names[k]).c_str(), identity), RF_OK);
            identities.push_back(identity);
        }
        for (int k = 0; k < count; k++)
            peers.push_back({names[k].c_str(), identities[k].c_str()});
        for (int k = 0; k < count; k++) {
            const std::string secret = signs ? "secret " + names[k] : "";
            rf_client_opts opts = {};
            opts.name = names[k].c_str();
            opts.secret = secret.c_str();
            opts.secure = signs ? 2 : 0;
            opts.peers = signs ? peers.data() : nullptr;
            opts.peer_count = signs ? count : 0;
            all.push_back(std::make_unique<secure_client>());
            EXPECT_EQ(federated_identify(all[k].get(), &opts), RF_OK) << rf_last_error()->message;
            EXPECT_EQ(federated_secure_begin(all[k].get(), threshold), RF_OK);
        }
    }
    ~Members()
    {
        for (const auto &client : all)
            rf_free(client->peers);
    }

    /* The bodies of PEERS and of what each client shares. */
    void ready()
    {
        peers.assign(all.size() * FEDERATED_PEER_BYTES, 0);
        for (size_t k = 0; k < all.size(); k++) {
            uint8_t body[FEDERATED_READY_BYTES];
            EXPECT_EQ(federated_secure_ready(all[k].get(), 7, 3, body), RF_OK);
            uint8_t *peer = &peers[k * FEDERATED_PEER_BYTES];
            memcpy(peer, names[k].data(), names[k].size());
            memcpy(peer + FEDERATED_NAME_BYTES, body, FEDERATED_KEYS_BYTES);
        }
    }
    int give_peers(int k, const Bytes &body)
    {
        size_t bytes = 0;
        Bytes out(FEDERATED_MESSAGE_BYTES);
        const federated_message m = message(RF_FEDERATED_PEERS, body);
        const int rc = federated_secure_peers(all[k].get(), &m, out.data(), &bytes);
        out.resize(bytes);
        sealed.push_back(out);
        return rc;
    }
    /* The body of SHARES for a member. */
    Bytes shares_for(int k) const
    {
        Bytes body(FEDERATED_SET_BYTES);
        for (int from = 0; from < static_cast<int>(all.size()); from++)
            if (from != k) {
                federated_add(body.data(), from);
                const auto *box =
                    &sealed[from][FEDERATED_SET_BYTES + (k - (k > from)) * FEDERATED_BOX_BYTES];
                body.insert(body.end(), box, box + FEDERATED_BOX_BYTES);
            }
        return body;
    }
    int give_shares(int k, const Bytes &body)
    {
        const federated_message m = message(RF_FEDERATED_SHARES, body);
        return federated_secure_shares(all[k].get(), &m);
    }
    int unmask(int k, const std::vector<int> &members)
    {
        Bytes set(FEDERATED_SET_BYTES), out(FEDERATED_MESSAGE_BYTES);
        size_t bytes = 0;
        for (const int member : members)
            federated_add(set.data(), member);
        const federated_message m = message(RF_FEDERATED_UNMASK, set);
        const int rc = federated_secure_unmask(all[k].get(), &m, out.data(), &bytes);
        if (rc == RF_OK) {
            out.resize(bytes);
            signatures[k] = out;
        }
        return rc;
    }
    /* With the signatures of these members, by names in the set. */
    int agreed(int k, const std::vector<int> &members)
    {
        Bytes body(FEDERATED_SET_BYTES), out(FEDERATED_MESSAGE_BYTES);
        size_t bytes = 0;
        for (const int member : members) {
            federated_add(body.data(), member);
            body.insert(body.end(), signatures[member].begin(), signatures[member].end());
        }
        const federated_message m = message(RF_FEDERATED_AGREED, body);
        return federated_secure_agreed(all[k].get(), &m, out.data(), &bytes);
    }
    /* All members have masked. */
    void mask()
    {
        ready();
        for (size_t k = 0; k < all.size(); k++)
            ASSERT_EQ(give_peers(static_cast<int>(k), peers), RF_OK) << rf_last_error()->message;
        for (int k = 0; k < static_cast<int>(all.size()); k++)
            ASSERT_EQ(give_shares(k, shares_for(k)), RF_OK) << rf_last_error()->message;
    }

    std::vector<std::string> names, identities;
    std::vector<std::unique_ptr<secure_client>> all;
    Bytes peers;
    std::vector<Bytes> sealed;
    std::map<int, Bytes> signatures;
};

bool said(const std::string &text)
{
    return std::string(rf_last_error()->message).find(text) != std::string::npos;
}

/* Whether the shares of these members make the secret. */
bool make_it(const uint8_t (*shares)[SHAMIR_BYTES], const Bytes &members, const uint8_t *secret)
{
    uint8_t weights[SHAMIR_MOST], got[SHAMIR_BYTES];
    std::vector<const uint8_t *> parts;
    for (const uint8_t member : members)
        parts.push_back(shares[member]);
    federated_share_weights(members.data(), static_cast<int>(members.size()), weights);
    federated_unshare(parts.data(), weights, static_cast<int>(members.size()), got);
    return memcmp(got, secret, sizeof got) == 0;
}

} // namespace

TEST(FederatedShares, AnyOfTheThresholdMakeTheSecretAndFewerDoNot)
{
    uint8_t secret[SHAMIR_BYTES], shares[SHAMIR_MOST][SHAMIR_BYTES];
    for (int i = 0; i < SHAMIR_BYTES; i++)
        secret[i] = static_cast<uint8_t>(7 * i);
    for (int count = 1; count <= 6; count++)
        for (int threshold = 1; threshold <= count; threshold++) {
            federated_share(secret, threshold, count, shares);
            for (int set = 1; set < 1 << count; set++) {
                Bytes members;
                for (int k = 0; k < count; k++)
                    if (set >> k & 1)
                        members.push_back(static_cast<uint8_t>(k));
                EXPECT_EQ(make_it(shares, members, secret),
                          static_cast<int>(members.size()) >= threshold);
            }
        }
    federated_share(secret, 128, 255, shares);
    Bytes members;
    for (int k = 254; k >= 127; k--)
        members.push_back(static_cast<uint8_t>(k));
    EXPECT_TRUE(make_it(shares, members, secret));
    members.pop_back();
    EXPECT_FALSE(make_it(shares, members, secret));
}

/* The largest numbers that are not refused, 255 times, and one above each limit. */
TEST(FederatedNumbers, NoSumOverflowsAndWhatIsOutsideTheRangeIsRefused)
{
    const struct {
        float value;
        double weight;
        bool weighted;
        const char *refused;
    } cases[] = {
        {32768, 1, false, nullptr},
        {-32768, 1, false, nullptr},
        {32769, 1, false, "range"},
        {-32769, 1, false, "range"},
        {1, 2147483648.0, true, nullptr},
        {0, 2147483649.0, true, "range"},
        {-2, 1073741824, true, nullptr},
        {-2.1f, 1073741824, true, "range"},
        {3e38f, 0, true, nullptr},
        {0, 0.001, true, "too small"},
        {-1, SECURE_LEAST_WEIGHT, true, nullptr},
    };
    for (const auto &c : cases) {
        EXPECT_EQ(federated_fixed_check(&c.value, 1, c.weight, c.weighted),
                  c.refused ? RF_EINVAL : RF_OK)
            << c.value;
        if (c.refused) {
            EXPECT_TRUE(said(c.refused)) << rf_last_error()->message;
            continue;
        }
        uint64_t numbers[2], sums[2] = {};
        federated_fixed(&c.value, 1, c.weight, c.weighted, 0, 2, numbers);
        for (int k = 0; k < 255; k++)
            for (int i = 0; i < 2; i++)
                sums[i] += numbers[i];
        EXPECT_EQ(federated_fixed_number(sums[0], c.weighted), 255.0 * c.value * c.weight);
        EXPECT_EQ(federated_fixed_number(sums[1], c.weighted), 255 * c.weight);
    }
}

TEST(FederatedNumbers, MasksOfPairsCancelInAnyPieces)
{
    std::mt19937_64 random(1);
    uint8_t seed[32];
    for (uint8_t &byte : seed)
        byte = static_cast<uint8_t>(random());
    std::vector<uint64_t> values(100), stream(100), by_pieces(100);
    federated_mask(seed, 1, 0, 100, stream.data(), values.data());
    EXPECT_NE(values, std::vector<uint64_t>(100));
    for (int64_t first = 0; first < 100; first += 24)
        federated_mask(seed, 1, first, std::min<int64_t>(24, 100 - first), stream.data(),
                       &by_pieces[first]);
    EXPECT_EQ(values, by_pieces);
    federated_mask(seed, -1, 0, 100, stream.data(), values.data());
    EXPECT_EQ(values, std::vector<uint64_t>(100));
}

/* Each pair has one mask, which all other members and rounds do not have. */
TEST(FederatedSecureClient, TheSumOfMasksIsThoseOfTheMembersThemselves)
{
    Members m(4, 3, true);
    m.mask();
    std::vector<uint64_t> sum(64), stream(64);
    for (int k = 0; k < 4; k++) {
        federated_secure_mask(m.all[k].get(), 0, 64, stream.data(), sum.data());
        federated_mask(m.all[k]->seed, -1, 0, 64, stream.data(), sum.data());
        EXPECT_EQ(sum == std::vector<uint64_t>(64), k == 3) << k;
    }
    for (int holder = 0; holder < 4; holder++)
        EXPECT_EQ(m.unmask(holder, {0, 1, 2, 3}), RF_OK);
    for (int holder = 0; holder < 4; holder++)
        EXPECT_EQ(m.agreed(holder, {0, 1, 3}), RF_OK) << rf_last_error()->message;
    EXPECT_EQ(std::vector<uint8_t>(m.all[0]->seed, m.all[0]->seed + 32), Bytes(32));
}

TEST(FederatedSecureClient, ForgedKeysOfPeersAreRefusedByName)
{
    const auto refused = [](bool signs, const std::function<void(Bytes &)> &forge,
                            const char *text) {
        Members m(4, 3, signs);
        m.ready();
        forge(m.peers);
        EXPECT_EQ(m.give_peers(0, m.peers), RF_EAUTH);
        EXPECT_TRUE(said(text)) << rf_last_error()->message;
    };
    const size_t b = FEDERATED_PEER_BYTES, keys = FEDERATED_NAME_BYTES;
    for (const size_t at : {keys, keys + 32, keys + 64}) /* either key, and the signature */
        refused(
            true, [&](Bytes &peers) { peers[b + at] ^= 1; }, "client b that are not signed");
    /* b has signed for itself, in this round, but not as c. */
    refused(
        true,
        [&](Bytes &peers) {
            std::copy_n(&peers[b + keys], FEDERATED_KEYS_BYTES, &peers[2 * b + keys]);
        },
        "client c that are not signed");
    refused(
        true, [&](Bytes &peers) { peers[3 * b] = 'x'; }, "client x into a secure aggregation");
    for (const bool signs : {false, true})
        refused(
            signs,
            [&](Bytes &peers) {
                Members other(4, 3, signs);
                other.ready();
                std::copy_n(&other.peers[keys], FEDERATED_KEYS_BYTES, &peers[keys]);
            },
            "other keys of client a");
    refused(
        false, [&](Bytes &peers) { std::fill_n(&peers[b + keys], 32, 0); },
        "client b that is none");
    refused(
        false, [&](Bytes &peers) { peers.resize(2 * b); }, "threshold 3");
    Members m(4, 2);
    m.ready();
    EXPECT_EQ(m.give_peers(0, m.peers), RF_EAUTH); /* two sums of two could be told apart */
    EXPECT_TRUE(said("not more than half of the 4")) << rf_last_error()->message;
}

/* Both shares of one peer: the set changes, or the coordinator asks again. */
TEST(FederatedSecureClient, ItNeverTellsBothSharesOfAPeer)
{
    Members m(4, 3);
    m.ready();
    for (int k = 0; k < 4; k++)
        ASSERT_EQ(m.give_peers(k, m.peers), RF_OK);
    EXPECT_EQ(m.unmask(0, {0, 1, 2}), RF_ECORRUPT); /* too early */
    for (int k = 0; k < 4; k++)
        ASSERT_EQ(m.give_shares(k, m.shares_for(k)), RF_OK);
    EXPECT_EQ(m.unmask(0, {0, 1}), RF_EAUTH);
    EXPECT_TRUE(said("a sum of 2 clients")) << rf_last_error()->message;
    EXPECT_EQ(m.unmask(0, {1, 2, 3}), RF_EAUTH);
    EXPECT_TRUE(said("as if its update had not arrived")) << rf_last_error()->message;
    EXPECT_EQ(m.unmask(0, {0, 1, 2, 4}), RF_ECORRUPT); /* there is no fifth */
    EXPECT_EQ(m.agreed(0, {}), RF_ECORRUPT);           /* too early */
    for (int k = 0; k < 3; k++)
        EXPECT_EQ(m.unmask(k, {0, 1, 2}), RF_OK);
    for (const bool revealed : {false, true}) {
        for (const std::vector<int> &set : {std::vector<int>{0, 1, 2, 3}, {0, 1, 2}}) {
            EXPECT_EQ(m.unmask(0, set), RF_EAUTH);
            EXPECT_TRUE(said("both shares of one client")) << rf_last_error()->message;
        }
        EXPECT_EQ(m.agreed(0, {0, 1, 2}), revealed ? RF_ECORRUPT : RF_OK);
    }
    uint8_t body[FEDERATED_READY_BYTES];
    for (const int64_t round : {3, 2}) { /* and no second sum with this update */
        EXPECT_EQ(federated_secure_ready(m.all[0].get(), 7, round, body), RF_EAUTH);
        EXPECT_TRUE(said("two sums of one round")) << rf_last_error()->message;
    }
    EXPECT_EQ(federated_secure_ready(m.all[0].get(), 7, 4, body), RF_OK);
}

/* Five members with the threshold three could be told five sets, from whose shares one update would
 * follow. With a list of peers they tell nothing before three have signed the same. */
TEST(FederatedSecureClient, ACoordinatorThatTellsDifferentSetsIsRefused)
{
    Members m(5, 3, true);
    m.mask();
    EXPECT_EQ(m.unmask(0, {0, 1, 2}), RF_OK);
    EXPECT_EQ(m.unmask(1, {0, 1, 2}), RF_OK);
    EXPECT_EQ(m.unmask(2, {0, 2, 3}), RF_OK);
    EXPECT_EQ(m.agreed(0, {0, 1, 2}), RF_EAUTH);
    EXPECT_TRUE(said("fewer than 3 clients have signed")) << rf_last_error()->message;
    m.signatures[2] = m.signatures[1]; /* of another one */
    EXPECT_EQ(m.agreed(0, {0, 1, 2}), RF_EAUTH);
    EXPECT_EQ(m.agreed(0, {0, 1}), RF_EAUTH);
    EXPECT_TRUE(said("a sum of 2 clients")) << rf_last_error()->message;
}

TEST(FederatedSecureClient, SharesThatAPeerHasNotSealedAreRefusedByName)
{
    Members m(3, 2);
    m.ready();
    for (int k = 0; k < 3; k++)
        ASSERT_EQ(m.give_peers(k, m.peers), RF_OK);
    Bytes changed = m.shares_for(0);
    changed[FEDERATED_SET_BYTES + FEDERATED_BOX_BYTES + 5] ^= 1;
    EXPECT_EQ(m.give_shares(0, changed), RF_EAUTH);
    EXPECT_TRUE(said("client c has not sealed for client a")) << rf_last_error()->message;
    const Bytes others = m.shares_for(2);
    EXPECT_EQ(m.give_shares(1, others), RF_ECORRUPT); /* its own shares */
    EXPECT_EQ(m.give_shares(1, Bytes(FEDERATED_SET_BYTES)), RF_EAUTH);
    EXPECT_TRUE(said("a sum of 1 clients")) << rf_last_error()->message;
}

TEST(FederatedSecureClient, ListsOfPeersThatCannotBeAreRefused)
{
    char a[65], b[65];
    ASSERT_EQ(rf_client_identity("of a", a), RF_OK);
    ASSERT_EQ(rf_client_identity("of b", b), RF_OK);
    const auto refused = [&](const std::vector<rf_federated_client_key> &peers, const char *secret,
                             int secure, int status, const char *text) {
        secure_client s = {};
        rf_client_opts opts = {};
        opts.name = "a";
        opts.secret = secret;
        opts.secure = secure;
        opts.peers = peers.empty() ? nullptr : peers.data();
        opts.peer_count = static_cast<int>(peers.size());
        EXPECT_EQ(federated_identify(&s, &opts), status) << text;
        EXPECT_TRUE(said(text)) << rf_last_error()->message;
        rf_free(s.peers);
    };
    refused({{"a", a}, {"b", b}}, "", 2, RF_EAUTH, "RF_IDENTITY_KEY");
    refused({{"a", b}, {"b", a}}, "of a", 2, RF_EAUTH, "another identity for client a");
    refused({{"b", b}}, "of a", 2, RF_EAUTH, "client a itself");
    refused({{"a", a}, {"b", a}}, "of a", 2, RF_EINVAL, "one identity");
    refused({{"a", a}, {"a", b}}, "of a", 2, RF_EINVAL, "twice");
    refused({{"a", a}, {"b c", b}}, "of a", 2, RF_EINVAL, "\"b c\"");
    refused({{"a", a}, {"b", "12"}}, "of a", 2, RF_EINVAL, "64 hexadecimal");
    b[3] = 'x';
    refused({{"a", a}, {"b", b}}, "of a", 2, RF_EINVAL, "64 hexadecimal");
    refused({{"a", a}}, "of a", 0, RF_EINVAL, "only with it");
    refused({}, "of a", 1, RF_EINVAL, "2 to 255");
    refused({}, "of a", 256, RF_EINVAL, "2 to 255");
    EXPECT_EQ(rf_client_identity("", a), RF_EAUTH);
}

TEST(FederatedSecureRules, ThresholdsThatCannotBeAreRefused)
{
    for (const auto &[clients, threshold] :
         std::vector<std::pair<int, int>>{{3, 1}, {4, 2}, {3, 4}, {3, -1}, {256, 200}}) {
        Coordinator c(clients);
        c.opts.secure = threshold;
        EXPECT_EQ(c.open(), RF_EINVAL) << clients << " " << threshold;
        EXPECT_TRUE(said("more than half")) << rf_last_error()->message;
    }
}

/* Without any training: the client ends before it has sent an update. */
TEST(FederatedSecureRules, AClientRefusesACoordinatorThatDoesLessThanItWants)
{
    for (const int threshold : {0, 2}) {
        Coordinator c(3);
        const Vector initial(3, 1);
        c.opts.initial = initial.data();
        c.opts.count = 3;
        c.opts.secure = threshold;
        c.on_round = [](const Round &) { return 1; };
        c.start();
        Client client(c, 0, 3);
        std::thread other; /* a round needs as many as the threshold */
        if (threshold)
            other = std::thread([&] {
                Client second(c, 1, 3);
                second.opts.timeout_s = 0.3;
                (void)second.open();
            });
        client.opts.secure = 3;
        EXPECT_EQ(client.open(), RF_EAUTH);
        EXPECT_TRUE(said(threshold ? "threshold of 2" : "wants secure aggregation"))
            << rf_last_error()->message;
        rf_coordinator_stop(c.coordinator);
        c.join();
        if (threshold)
            other.join();
    }
}
