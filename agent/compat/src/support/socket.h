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
  SockAddr(const char* host, int port) {
    addrinfo wanted{};
    addrinfo* found = nullptr;
    wanted.ai_socktype = SOCK_STREAM;
    TVM_FFI_ICHECK_EQ(getaddrinfo(host, std::to_string(port).c_str(), &wanted, &found), 0) << "cannot resolve " << host;
    std::memcpy(&address_, found->ai_addr, found->ai_addrlen);
    size_ = found->ai_addrlen;
    freeaddrinfo(found);
  }
  int ss_family() const { return address_.ss_family; }
  const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&address_); }
  socklen_t size() const { return size_; }
  std::string AsString() const {
    char host[128] = "";
    char port[16] = "";
    getnameinfo(data(), size_, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    return std::string(host) + ":" + port;
  }

 private:
  sockaddr_storage address_{};
  socklen_t size_ = 0;
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

  // As many bytes as can be had; fewer than `size` if the connection ends.
  size_t SendAll(const void* data, size_t size) {
    return All(size, [&](size_t done) { return Send(static_cast<const char*>(data) + done, size - done); });
  }
  size_t RecvAll(void* data, size_t size) {
    return All(size, [&](size_t done) { return Recv(static_cast<char*>(data) + done, size - done); });
  }

 private:
  template <typename Call>
  static size_t All(size_t size, Call call) {
    size_t done = 0;
    while (done < size) {
      const ssize_t count = call(done);
      if (count <= 0) break;
      done += static_cast<size_t>(count);
    }
    return done;
  }

  SockType descriptor_ = -1;
};

}  // namespace support
}  // namespace tvm
