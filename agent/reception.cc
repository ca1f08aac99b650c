#include "reception.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace agent {
namespace {

constexpr size_t kInteger = sizeof(int32_t);
constexpr int32_t kLongestText = 4096;
constexpr std::chrono::seconds kGreetingTime{5};
// How many clients may be at their greeting; one more is taken in the place of the oldest.
constexpr size_t kMostPending = 16;

// How many bytes a greeting has, as far as its first ones say: a magic number, a length, a text of that length.
// Failure(kOther) if it is none.
size_t SizeOf(const std::string& received) {
  if (received.size() >= kInteger && IntegerOf(received) != kMagic) {
    throw Failure(Code::kOther, "it does not speak TVM's protocol");
  }
  if (received.size() < 2 * kInteger) return 2 * kInteger;
  const int32_t length = IntegerOf(received.substr(kInteger));
  if (length < 0 || length > kLongestText) throw Failure(Code::kOther, "its greeting has an impossible length");
  return 2 * kInteger + static_cast<size_t>(length);
}

// Reads what has come of a greeting. Returns whether it is complete; Failure(kOther) if it never will be.
bool Complete(Connection& connection, std::string* received) {
  for (;;) {
    const size_t size = SizeOf(*received);
    if (received->size() == size && size >= 2 * kInteger) return true;
    const size_t before = received->size();
    const bool open = connection.Receive(received, size - before);
    if (received->size() == before) {
      if (open) return false;
      throw Failure(Code::kOther, "it went away");
    }
  }
}

}  // namespace

std::optional<Greeting> Reception::Next(Watch& watch, Clock::time_point deadline) {
  for (;;) {
    Clock::time_point wake = deadline;
    for (auto each = pending_.begin(); each != pending_.end();) {
      try {
        if (Complete(each->connection, &each->received)) {
          Greeting greeting{std::move(each->connection), each->received.substr(2 * kInteger)};
          pending_.erase(each);
          return greeting;
        }
        if (Clock::now() >= each->deadline) throw Failure(Code::kOther, "its greeting took too long");
        wake = std::min(wake, each->deadline);
        ++each;
      } catch (const Failure& failure) {
        Log(std::string("a client was turned away: ") + failure.what());
        each = pending_.erase(each);
      }
    }
    if (Clock::now() >= deadline) return std::nullopt;
    std::vector<pollfd> descriptors{{listener_.get(), POLLIN, 0}};
    for (const Pending& each : pending_) descriptors.push_back({each.connection.get(), POLLIN, 0});
    watch.Wait(descriptors, wake);
    if (descriptors[0].revents != 0) AcceptSome();
  }
}

// As many as there is room for, but one at least: those that were there before are read again between.
void Reception::AcceptSome() {
  do {
    Connection connection(Descriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
    if (!connection) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        throw Failure(Code::kOther, "cannot take a client", SystemError());
      }
      return;
    }
    if (pending_.size() == kMostPending) {
      Log("a client was turned away: too many others came before its greeting was complete");
      pending_.erase(pending_.begin());
    }
    pending_.push_back({std::move(connection), Clock::now() + kGreetingTime, ""});
  } while (pending_.size() < kMostPending);
}

}  // namespace agent
