#include "notifier.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace agent {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

Notifier::Notifier() : address_(Environment("NOTIFY_SOCKET")) {
  const std::string pid = Environment("WATCHDOG_PID");
  if (pid.empty() || pid == std::to_string(getpid())) {
    const long long us = std::strtoll(Environment("WATCHDOG_USEC").c_str(), nullptr, 10);
    if (us >= 1000) watchdog_ = std::chrono::milliseconds(us / 1000);
  }
  const bool is_address = !address_.empty() && (address_[0] == '/' || address_[0] == '@');
  if (!is_address || address_.size() >= sizeof(sockaddr_un::sun_path)) {
    address_.clear();
    return;
  }
  if (address_[0] == '@') address_[0] = '\0';
  socket_ = Descriptor(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

void Notifier::Tell(const std::string& state) const {
  if (!socket_) return;
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, address_.data(), address_.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  const ssize_t sent = sendto(socket_.get(), state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                              reinterpret_cast<const sockaddr*>(&to), size);
  static_cast<void>(sent);
}

}  // namespace agent
