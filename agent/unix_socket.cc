#include "unix_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace agent {
namespace {

constexpr int kWaiting = 64;

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    throw Failure(Code::kUsage, "the path of the socket has " + std::to_string(path.size()) + " bytes",
                  "it has from 1 to " + std::to_string(sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Descriptor NewSocket(int flags) {
  Descriptor made(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (!made) throw Failure(Code::kOther, "there is no further socket", SystemError());
  return made;
}

// Makes room for a socket: what a service left that was killed.
void RemoveAbandoned(const std::string& path, const sockaddr_un& address) {
  struct stat status{};
  if (lstat(path.c_str(), &status) != 0) return;
  if (!S_ISSOCK(status.st_mode)) throw Failure(Code::kOther, "cannot listen at " + path, "something else lies there");
  const Descriptor probe = NewSocket(SOCK_NONBLOCK);
  if (connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 || errno != ECONNREFUSED) {
    throw Failure(Code::kOther, "cannot listen at " + path, "another program answers there");
  }
  unlink(path.c_str());
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

UnixListener::UnixListener(std::string path) : path_(std::move(path)) {
  const sockaddr_un address = AddressOf(path_);
  RemoveAbandoned(path_, address);
  Descriptor made = NewSocket(SOCK_NONBLOCK);
  const mode_t before = umask(0177);  // from its first moment on nobody else may connect
  const bool bound = bind(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  const std::string why = SystemError();
  umask(before);
  if (!bound) throw Failure(Code::kOther, "cannot listen at " + path_, why);
  listener_ = std::move(made);
  if (listen(listener_.get(), kWaiting) != 0) throw Failure(Code::kOther, "cannot listen at " + path_, SystemError());
}

Descriptor UnixListener::Accept() const { return Descriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)); }

void UnixListener::Close() {
  if (!listener_) return;
  unlink(path_.c_str());
  listener_ = Descriptor();
}

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
  const sockaddr_un to = AddressOf(address_);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  const ssize_t sent = sendto(socket_.get(), state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                              reinterpret_cast<const sockaddr*>(&to), size);
  static_cast<void>(sent);
}

}  // namespace agent
