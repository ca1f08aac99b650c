#include "socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

namespace agent {
namespace {

// How many clients may wait, as far as the kernel keeps them.
constexpr int kBacklog = 16;
constexpr std::chrono::seconds kResolveTime{30};

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// The addresses of a host, or an error of getaddrinfo().
int Resolve(const std::string& host, const std::string& port, int flags, std::vector<Address>* addresses) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = flags;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), port.c_str(), &wanted, &found);
  for (const addrinfo* each = error == 0 ? found : nullptr; each; each = each->ai_next) {
    Address address;
    address.size = std::min<socklen_t>(each->ai_addrlen, sizeof address.storage);
    std::memcpy(&address.storage, each->ai_addr, address.size);
    addresses->push_back(address);
  }
  if (error == 0) freeaddrinfo(found);
  return error;
}

// The process that asks for a name; it ends with this object.
class Lookup {
 public:
  Lookup(const std::string& host, const std::string& port, int flags, const Watch& watch) {
    auto [output, input] = Pipe("cannot resolve " + host);
    output_ = std::move(output);
    child_ = fork();
    if (child_ < 0) throw Failure(Code::kOther, "cannot resolve " + host, SystemError());
    if (child_ > 0) return;
    watch.Leave();
    std::vector<Address> addresses;
    const int error = Resolve(host, port, flags, &addresses);
    const ssize_t told = write(input.get(), &error, sizeof error);
    // One write is whole, up to 4096 bytes: 31 addresses.
    const size_t size = std::min<size_t>(addresses.size(), 31) * sizeof(Address);
    const ssize_t written = write(input.get(), addresses.data(), size);
    _exit(told < 0 || written < 0);
  }
  ~Lookup() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  Lookup(const Lookup&) = delete;
  Lookup& operator=(const Lookup&) = delete;

  // All that the process says until it ends.
  std::string Answer(Watch& watch, Clock::time_point deadline) {
    std::string answer;
    char block[4096];
    while (Clock::now() < deadline) {
      if (!watch.Wait(output_.get(), POLLIN, deadline)) continue;
      const ssize_t count = read(output_.get(), block, sizeof block);
      if (count <= 0) break;
      answer.append(block, static_cast<size_t>(count));
    }
    return answer;
  }

 private:
  Descriptor output_;
  pid_t child_ = -1;
};

// The addresses of a host. Names are asked for in another process: getaddrinfo() waits as long as it likes.
std::vector<Address> Resolve(const std::string& host, const std::string& port, int flags, Watch& watch) {
  std::vector<Address> addresses;
  if (Resolve(host, port, flags | AI_NUMERICHOST | AI_NUMERICSERV, &addresses) == 0) return addresses;
  const std::string answer = Lookup(host, port, flags, watch).Answer(watch, Clock::now() + kResolveTime);
  int error = EAI_AGAIN;
  if (answer.size() >= sizeof error) std::memcpy(&error, answer.data(), sizeof error);
  if (error != 0) throw Failure(Code::kOther, "cannot resolve " + host, gai_strerror(error));
  addresses.resize((answer.size() - sizeof error) / sizeof(Address));
  if (addresses.empty()) throw Failure(Code::kOther, "cannot resolve " + host, "it has no address");
  std::memcpy(addresses.data(), answer.data() + sizeof error, addresses.size() * sizeof(Address));
  return addresses;
}

Descriptor NewSocket(int family) { return Descriptor(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

void SetOption(int descriptor, int level, int option, int value) {
  setsockopt(descriptor, level, option, &value, sizeof value);
}

bool MayComeLater() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

void RequireTime(Clock::time_point deadline) {
  if (Clock::now() >= deadline) throw Failure(Code::kOther, "the other side takes too long");
}

// Whether a socket that connects has done so, or could not; errno says why.
bool Connected(int descriptor, const Address& address, Watch& watch, Clock::time_point deadline) {
  if (connect(descriptor, address.get(), address.size) == 0) return true;
  if (errno != EINPROGRESS) return false;
  while (!watch.Wait(descriptor, POLLOUT, deadline)) {
    errno = ETIMEDOUT;
    if (Clock::now() >= deadline) return false;
  }
  socklen_t size = sizeof errno;
  int error = 0;
  getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size);
  errno = error;
  return error == 0;
}

}  // namespace

std::string IntegerBytes(int32_t value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  return {bytes, sizeof value};
}

int32_t IntegerOf(const std::string& bytes) {
  int32_t value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

bool Connection::Receive(std::string* text, size_t most) {
  char block[4096];
  while (most > 0) {
    const ssize_t count = recv(get(), block, std::min(most, sizeof block), MSG_DONTWAIT);
    if (count < 0) return MayComeLater();
    if (count == 0) return false;
    text->append(block, static_cast<size_t>(count));
    most -= static_cast<size_t>(count);
  }
  return true;
}

size_t Connection::Send(const std::string& text) {
  const ssize_t count = send(get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (count < 0 && !MayComeLater()) throw Failure(Code::kOther, "the connection is lost", SystemError());
  return count < 0 ? 0 : static_cast<size_t>(count);
}

void Connection::SendAll(const std::string& text, Watch& watch, Clock::time_point deadline) {
  for (size_t sent = Send(text); sent < text.size(); sent += Send(text.substr(sent))) {
    watch.Wait(get(), POLLOUT, deadline);
    RequireTime(deadline);
  }
}

std::string Connection::ReceiveExactly(size_t size, Watch& watch, Clock::time_point deadline) {
  std::string text;
  for (;;) {
    const bool open = Receive(&text, size - text.size());
    if (text.size() == size) return text;
    if (!open) throw Failure(Code::kOther, "the other side closed the connection");
    watch.Wait(get(), POLLIN, deadline);
    RequireTime(deadline);
  }
}

void Connection::SetForSession() {
  SetBlocking(true);
  SetOption(get(), IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(get(), SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(get(), IPPROTO_TCP, TCP_KEEPIDLE, 60);
}

void Connection::SetBlocking(bool blocking) {
  const int flags = fcntl(get(), F_GETFL);
  fcntl(get(), F_SETFL, blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}

Connection Connect(const std::string& host, const std::string& port, Watch& watch, Clock::time_point deadline) {
  for (const Address& address : Resolve(host, port, 0, watch)) {
    Descriptor descriptor = NewSocket(address.storage.ss_family);
    if (descriptor && Connected(descriptor.get(), address, watch, deadline)) {
      // Messages are small, and the next one does not wait until the last is acknowledged, which takes 40 ms.
      SetOption(descriptor.get(), IPPROTO_TCP, TCP_NODELAY, 1);
      return Connection(std::move(descriptor));
    }
  }
  throw Failure(Code::kOther, "cannot connect to " + host + ":" + port, SystemError());
}

std::pair<Descriptor, int> Listen(const std::string& host, int first, int last, Watch& watch) {
  for (int port = first; port <= last; ++port) {
    const Address address = Resolve(host, std::to_string(port), AI_PASSIVE, watch).front();
    Descriptor descriptor = NewSocket(address.storage.ss_family);
    SetOption(descriptor.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (bind(descriptor.get(), address.get(), address.size) == 0 && listen(descriptor.get(), kBacklog) == 0) {
      Address bound;
      bound.size = sizeof bound.storage;
      getsockname(descriptor.get(), reinterpret_cast<sockaddr*>(&bound.storage), &bound.size);
      // The port lies at the same place for IPv4 and IPv6.
      return {std::move(descriptor), ntohs(reinterpret_cast<sockaddr_in*>(&bound.storage)->sin_port)};
    }
    if (errno != EADDRINUSE) throw Failure(Code::kOther, "cannot listen on " + host, SystemError());
  }
  throw Failure(Code::kOther, "no port from " + std::to_string(first) + " to " + std::to_string(last) + " is free");
}

}  // namespace agent
