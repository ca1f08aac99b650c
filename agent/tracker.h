// The server's side of TVM's RPC tracker (`tvm/rpc/tracker.py`): it hands waiting servers to clients.
#pragma once

#include <string>

#include "json.h"
#include "socket.h"

namespace agent {

class Tracker {
 public:
  // `address` is HOST:PORT; Failure(kUsage) if it is not. `custom_address`, or the address it comes from
  // if that is empty, and `port` are what clients are told.
  Tracker(const std::string& address, std::string key, std::string custom_address, int port);

  bool connected() const { return static_cast<bool>(connection_); }
  void Disconnect() { connection_ = Connection(); }
  // The following throw Ended, and Failure(kOther) if the tracker is gone or does not answer in time.

  // Connects, and says what serves here.
  void Connect(Watch& watch);
  // Offers one session under a new secret, which the client must name.
  void Offer(Watch& watch);
  // Whether nobody has taken the offer yet.
  bool OfferWaits(Watch& watch);
  const std::string& secret() const { return secret_; }

 private:
  Json Ask(const Json& message, Watch& watch);

  std::string host_;
  std::string tracker_port_;
  std::string key_;
  Json custom_address_;
  int port_;
  std::string secret_;
  Connection connection_;
};

}  // namespace agent
