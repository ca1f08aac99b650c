#include "socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <memory>

namespace agent {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses Resolve(const std::string& host, const std::string& port, int flags) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = flags;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), port.c_str(), &wanted, &found);
  if (error != 0) throw Failure(Code::kOther, "cannot resolve " + host, gai_strerror(error));
  return Addresses(found, &freeaddrinfo);
}

void SetOption(int descriptor, int level, int option, int value) {
  setsockopt(descriptor, level, option, &value, sizeof value);
}

}  // namespace

int32_t Connection::ReceiveInteger() {
  int32_t value = 0;
  Receive(&value, sizeof value);
  return value;
}

void Connection::SendText(const std::string& text) {
  SendInteger(static_cast<int32_t>(text.size()));
  Send(text.data(), text.size());
}

std::string Connection::ReceiveText(int32_t most) {
  const int32_t size = ReceiveInteger();
  if (size < 0 || size > most) throw Failure(Code::kOther, "a message of an impossible length came");
  std::string text(static_cast<size_t>(size), '\0');
  Receive(text.data(), text.size());
  return text;
}

void Connection::SetTimeout(int seconds) {
  const timeval limit{seconds, 0};
  setsockopt(get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

void Connection::SetForSession() {
  SetTimeout(0);
  SetOption(get(), IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(get(), SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(get(), IPPROTO_TCP, TCP_KEEPIDLE, 60);
}

void Connection::Send(const void* data, size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t count = send(get(), bytes, size, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw Failure(Code::kOther, "the connection is lost", SystemError());
    bytes += count;
    size -= static_cast<size_t>(count);
  }
}

void Connection::Receive(void* data, size_t size) {
  auto* bytes = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t count = recv(get(), bytes, size, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Failure(Code::kOther, "the connection is lost", SystemError());
    if (count == 0) throw Failure(Code::kOther, "the other side closed the connection");
    bytes += count;
    size -= static_cast<size_t>(count);
  }
}

Connection Connect(const std::string& host, const std::string& port) {
  const Addresses addresses = Resolve(host, port, 0);
  for (const addrinfo* each = addresses.get(); each; each = each->ai_next) {
    Descriptor descriptor(socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (descriptor && connect(descriptor.get(), each->ai_addr, each->ai_addrlen) == 0) {
      // Messages are sent in two parts: the second does not wait until the first is acknowledged, which takes 40 ms.
      SetOption(descriptor.get(), IPPROTO_TCP, TCP_NODELAY, 1);
      return Connection(std::move(descriptor));
    }
  }
  throw Failure(Code::kOther, "cannot connect to " + host + ":" + port, SystemError());
}

std::pair<Descriptor, int> Listen(const std::string& host, int first, int last) {
  for (int port = first; port <= last; ++port) {
    const Addresses addresses = Resolve(host, std::to_string(port), AI_PASSIVE);
    Descriptor descriptor(socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    SetOption(descriptor.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (bind(descriptor.get(), addresses->ai_addr, addresses->ai_addrlen) == 0 && listen(descriptor.get(), 4) == 0) {
      sockaddr_storage bound{};
      socklen_t size = sizeof bound;
      getsockname(descriptor.get(), reinterpret_cast<sockaddr*>(&bound), &size);
      // The port lies at the same place for IPv4 and IPv6.
      return {std::move(descriptor), ntohs(reinterpret_cast<sockaddr_in*>(&bound)->sin_port)};
    }
    if (errno != EADDRINUSE) throw Failure(Code::kOther, "cannot listen on " + host, SystemError());
  }
  throw Failure(Code::kOther, "no port from " + std::to_string(first) + " to " + std::to_string(last) + " is free");
}

}  // namespace agent
