// TCP sockets as the runtime's RPC uses them: plain descriptors that whoever owns them closes.
#pragma once

#include <netdb.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <tvm/ffi/error.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace tvm {
namespace support {

class SockAddr {
 public:
  SockAddr(const char* host, int port) : name_(std::string(host) + ":" + std::to_string(port)) {
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_STREAM;
    TVM_FFI_ICHECK_EQ(getaddrinfo(host, std::to_string(port).c_str(), &wanted, &found_), 0)
        << "cannot resolve " << host;
  }
  ~SockAddr() { freeaddrinfo(found_); }
  SockAddr(const SockAddr&) = delete;
  SockAddr& operator=(const SockAddr&) = delete;

  int ss_family() const { return found_->ai_family; }
  const sockaddr* data() const { return found_->ai_addr; }
  socklen_t size() const { return found_->ai_addrlen; }
  const std::string& AsString() const { return name_; }

 private:
  std::string name_;
  addrinfo* found_ = nullptr;
};

class Socket {
 public:
  using SockType = int;
  [[noreturn]] static void Error(const char* what) {
    TVM_FFI_THROW(InternalError) << what << ": " << std::strerror(errno);
  }
};

class TCPSocket : public Socket {
 public:
  TCPSocket() = default;
  explicit TCPSocket(SockType descriptor) : descriptor_(descriptor) {}

  void Create(int family) {
    descriptor_ = socket(family, SOCK_STREAM, 0);
    if (descriptor_ < 0) Error("socket");
  }
  bool Connect(const SockAddr& address) { return connect(descriptor_, address.data(), address.size()) == 0; }
  bool BadSocket() const { return descriptor_ < 0; }
  void Close() {
    if (descriptor_ >= 0) close(descriptor_);
    descriptor_ = -1;
  }

  // One call's worth of bytes; -1 for an error, 0 if the other side has closed.
  ssize_t Send(const void* data, size_t size) {
    return TEMP_FAILURE_RETRY(send(descriptor_, data, size, MSG_NOSIGNAL));
  }
  ssize_t Recv(void* data, size_t size) { return TEMP_FAILURE_RETRY(recv(descriptor_, data, size, 0)); }

  // All bytes, since the socket blocks; fewer than `size` if the connection ends.
  size_t SendAll(const void* data, size_t size) { return static_cast<size_t>(Send(data, size)); }
  size_t RecvAll(void* data, size_t size) {
    return static_cast<size_t>(TEMP_FAILURE_RETRY(recv(descriptor_, data, size, MSG_WAITALL)));
  }

 private:
  SockType descriptor_ = -1;
};

}  // namespace support
}  // namespace tvm
