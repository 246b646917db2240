// SPDX-License-Identifier: MIT
//
// The join listener of a running job: which newcomers it accepts, which it refuses with a reason,
// and that unexpected input on one connection does not affect the others.
#include "job_helpers.h"

#include <random>

extern "C" {
#include "transport/bootstrap/join_listener.h"
#include "transport/transport.h"
}

using namespace job;

namespace
{

const char KEY[] = "key of the join listener test";

struct Answer {
    int status = 1;
    std::string message, notes;
    rf_invitation invitation{};
};

Answer ask_to_join(int port, const std::string &terms, const char *key = KEY, double timeout_s = 10)
{
    Answer v;
    const std::string url = tcp_url(port);
    rf_join_request request{};
    request.url = url.c_str();
    request.key = key;
    request.terms = terms.c_str();
    request.timeout_s = timeout_s;
    request.note = [](void *user, const char *text) {
        static_cast<Answer *>(user)->notes += std::string(text) + "\n";
    };
    request.user = &v;
    v.status = rf_newcomer_wait(&request, &v.invitation);
    if (v.status < 0)
        v.message = rf_last_error()->message;
    return v;
}

rf_join_listener *open(const char *terms)
{
    rf_join_listener *join_listener = nullptr;
    EXPECT_EQ(rf_join_listener_create(0, KEY, terms, &join_listener), 0)
        << rf_last_error()->message;
    return join_listener;
}

void wait_for(rf_join_listener *join_listener, int count)
{
    while (rf_join_listener_waiting(join_listener) < count)
        std::this_thread::yield();
}

} // namespace

TEST(JoinListener, TermsAgreeIfEveryLineOfTheNewcomerIsTheJobs)
{
    char why[400] = "";
    const char *job = "a=1\nb=x y\nempty=\n";
    for (const char *theirs :
         {"", "a=1\n", "b=x y", "empty=\n", "b=x y\na=1\nempty=", "\n\nnoise\n"})
        EXPECT_TRUE(rf_terms_agree(job, theirs, why, sizeof why)) << theirs << ": " << why;
    EXPECT_FALSE(rf_terms_agree(job, "b=x y\na=12\n", why, sizeof why));
    EXPECT_STREQ(why, "the job has a 1, the newcomer 12; start it with what the job has");
    EXPECT_FALSE(rf_terms_agree(job, "empty=now not", why, sizeof why));
    EXPECT_STREQ(why,
                 "the job has empty none, the newcomer now not; start it with what the job has");
    EXPECT_FALSE(rf_terms_agree(job, "c=1", why, sizeof why));
    EXPECT_STREQ(why, "the job knows no c; start the newcomer with the job's version");
    EXPECT_FALSE(rf_terms_agree(job, ("a=" + std::string(5000, 'q')).c_str(), why, sizeof why));
    EXPECT_LT(strlen(why), sizeof(why) - 1);
}

TEST(JoinListener, AWrongKeyOrOtherTermsAreRefusedWithAReasonAndOthersWaitOn)
{
    rf_join_listener *join_listener = open("a=1\n");
    const int port = rf_join_listener_port(join_listener);
    Answer good;
    rf_join_listener_set_status(join_listener, "for the next save");
    std::thread waiting([&] { good = ask_to_join(port, "a=1\n"); });
    wait_for(join_listener, 1);
    std::mt19937 random(1);
    for (int i = 0; i < 20; i++) { // other programs that send random data, or nothing
        char noise[300];
        for (char &c : noise)
            c = (char)random();
        const int fd = connect_to(port);
        ASSERT_GE(fd, 0);
        if (i % 2) {
            EXPECT_GT(send(fd, noise, sizeof noise, MSG_NOSIGNAL), 0);
        }
        close(fd);
    }
    const Answer other_key = ask_to_join(port, "a=1\n", "another key"),
                 other_terms = ask_to_join(port, "a=2\n");
    EXPECT_EQ(other_key.status, RF_EAUTH);
    EXPECT_NE(other_key.message.find("the job key is wrong"), std::string::npos)
        << other_key.message;
    EXPECT_EQ(other_terms.status, RF_EINVAL);
    EXPECT_EQ(other_terms.message,
              "rank 0 says: the job has a 1, the newcomer 2; start it with what the job has");
    EXPECT_EQ(rf_join_listener_waiting(join_listener), 1);
    rf_join_listener_close(join_listener, "the job has ended");
    waiting.join();
    EXPECT_EQ(good.status, RF_EPEER);
    EXPECT_EQ(good.message, "rank 0 says: the job has ended");
    EXPECT_EQ(good.notes, "for the next save\n");
}

TEST(JoinListener, HoldsSixtyFourAndRefusesTheNext)
{
    rf_join_listener *join_listener = open("");
    const int port = rf_join_listener_port(join_listener);
    std::vector<std::thread> waiting;
    for (int i = 0; i < RF_JOIN_MAX_WAITING; i++)
        waiting.emplace_back([&] { EXPECT_EQ(ask_to_join(port, "").status, RF_EPEER); });
    wait_for(join_listener, RF_JOIN_MAX_WAITING);
    const Answer late = ask_to_join(port, "");
    EXPECT_EQ(late.status, RF_EBUSY);
    EXPECT_EQ(late.message, "rank 0 says: 64 newcomers wait for this job already; try again later");
    rf_join_listener_close(join_listener, "the job has ended");
    for (std::thread &thread : waiting)
        thread.join();
}

TEST(JoinListener, IsNotOpenedWithoutAKey)
{
    rf_join_listener *join_listener = nullptr;
    unsetenv("RF_JOB_KEY");
    EXPECT_EQ(rf_join_listener_create(0, nullptr, "", &join_listener), RF_EAUTH);
    EXPECT_EQ(ask_to_join(1, "", nullptr, 0.1).status, RF_EAUTH);
}

TEST(JoinListener, InvitationsThatMakeNoSenseAreRefused)
{
    uint8_t bytes[RF_INVITATION_BYTES];
    rf_invitation in{}, out{};
    in.port = 4242;
    in.rank = 3;
    in.size = 4;
    memset(in.job, 7, sizeof in.job);
    rf_invitation_write(&in, bytes);
    ASSERT_EQ(rf_invitation_read(bytes, &out), 0);
    EXPECT_EQ(out.port, 4242);
    EXPECT_EQ(out.rank, 3);
    EXPECT_EQ(out.size, 4);
    EXPECT_EQ(memcmp(out.job, in.job, sizeof in.job), 0);
    for (int place : {3, 7, 11}) { // the highest bytes of port, rank and size
        bytes[place] ^= 0x80;
        EXPECT_EQ(rf_invitation_read(bytes, &out), RF_ECORRUPT) << place;
        bytes[place] ^= 0x80;
    }
    in.rank = 0; // the inviting rank's own number
    rf_invitation_write(&in, bytes);
    EXPECT_EQ(rf_invitation_read(bytes, &out), RF_ECORRUPT);
}
