// Clients of the RPC server from when they connect until they have said who they are.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "socket.h"

namespace agent {

// What greetings and the answers to them begin with (tvm/rpc/base.py).
inline constexpr int32_t kMagic = 0xff271;

// A client and what it said: `client:` with a secret, and options after blanks.
struct Greeting {
  Connection connection;
  std::string text;
};

// Reads the greetings of several clients at a time. Each has one deadline in all; whoever is slow keeps nobody waiting.
class Reception {
 public:
  explicit Reception(Descriptor listener) : listener_(std::move(listener)) {}
  // The next client that has greeted; none if none has until the deadline. Throws Ended, and Failure(kOther) if the
  // system gives no connection.
  std::optional<Greeting> Next(Watch& watch, Clock::time_point deadline);

 private:
  struct Pending {
    Connection connection;
    Clock::time_point deadline;
    std::string received;
  };
  void AcceptSome();

  Descriptor listener_;
  std::vector<Pending> pending_;  // the oldest first
};

}  // namespace agent
