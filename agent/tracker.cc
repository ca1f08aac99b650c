#include "tracker.h"

#include <random>

namespace agent {
namespace {

// tvm/rpc/base.py
constexpr int32_t kTrackerMagic = 0x2f271;
enum TrackerCode { kPut = 3, kUpdateInfo = 5, kGetPendingMatchKeys = 7 };

constexpr int32_t kMaximumMessage = 1 << 20;
// For one message and its whole answer, and for connecting.
constexpr std::chrono::seconds kAnswerTime{10};

}  // namespace

Tracker::Tracker(const std::string& address, std::string key, std::string custom_address, int port)
    : key_(std::move(key)),
      custom_address_(custom_address.empty() ? Json() : Json(std::move(custom_address))),
      port_(port) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size()) {
    throw Failure(Code::kUsage, "--tracker must be HOST:PORT");
  }
  host_ = address.substr(0, colon);
  tracker_port_ = address.substr(colon + 1);
}

void Tracker::Connect(Watch& watch) {
  const Clock::time_point deadline = Clock::now() + kAnswerTime;
  connection_ = agent::Connect(host_, tracker_port_, watch, deadline);
  connection_.SendAll(IntegerBytes(kTrackerMagic), watch, deadline);
  if (IntegerOf(connection_.ReceiveExactly(sizeof kTrackerMagic, watch, deadline)) != kTrackerMagic) {
    throw Failure(Code::kOther, "there is no tracker at " + host_ + ":" + tracker_port_);
  }
  const Json information =
      Json::NewObject({{"key", "server:" + key_}, {"addr", Json(Json::Array{custom_address_, Json(port_)})}});
  Ask(Json(Json::Array{Json(kUpdateInfo), information}), watch);
}

void Tracker::Offer(Watch& watch) {
  static std::random_device random;
  secret_ = key_ + ":" + std::to_string(random()) + std::to_string(random());
  Ask(Json(Json::Array{Json(kPut), Json(key_), Json(Json::Array{Json(port_), Json(secret_)}), custom_address_}), watch);
}

bool Tracker::OfferWaits(Watch& watch) {
  const Json waiting = Ask(Json(Json::Array{Json(kGetPendingMatchKeys)}), watch);
  try {
    for (const Json& key : waiting.array()) {
      if (key.text() == secret_) return true;
    }
  } catch (const JsonError& error) {
    throw Failure(Code::kOther, "the tracker's answer is none", error.what());
  }
  return false;
}

Json Tracker::Ask(const Json& message, Watch& watch) {
  const Clock::time_point deadline = Clock::now() + kAnswerTime;
  const std::string text = message.Dump();
  connection_.SendAll(IntegerBytes(static_cast<int32_t>(text.size())) + text, watch, deadline);
  const int32_t size = IntegerOf(connection_.ReceiveExactly(sizeof size, watch, deadline));
  if (size < 0 || size > kMaximumMessage) throw Failure(Code::kOther, "the tracker's answer has an impossible length");
  try {
    return ParseJson(connection_.ReceiveExactly(static_cast<size_t>(size), watch, deadline));
  } catch (const JsonError& error) {
    throw Failure(Code::kOther, "the tracker's answer is not JSON", error.what());
  }
}

}  // namespace agent
