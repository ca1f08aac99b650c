// What a service shares with the other programs of its machine: its own socket, by a path that its owner alone may use;
// memory, through which frames and values go without the socket; and the socket of systemd.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "files.h"
#include "protocol.h"

namespace agent {

// Listens at a path, with mode 0600, and removes that at its end.
class UnixListener {
 public:
  // A socket at which nobody answers any more is replaced. Failure(kUsage) for a path that is too long, Failure(kOther)
  // if another program answers there, if something else lies there, or its folder cannot be written.
  explicit UnixListener(std::string path);
  ~UnixListener() { Close(); }

  int get() const { return listener_.get(); }
  // The next waiting client, if any.
  Descriptor Accept() const;
  // No client comes any more.
  void Close();

 private:
  std::string path_;
  Descriptor listener_;
};

class SharedMemory {
 public:
  // Of the first `size` bytes of memory that its owner cannot take away again. Failure(kInput) if it could be, since
  // whoever reads it then would be killed; if it has fewer bytes; or cannot be mapped.
  SharedMemory(const Descriptor& memory, int64_t size);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // `bytes` of it. Failure(kInput) if they are not all within.
  uint8_t* At(int64_t begin, int64_t bytes) const;

 private:
  uint8_t* begin_;
  size_t size_;
};

// Requests of a Unix socket, with which descriptors may come.
class SharingReader : public RequestReader {
 public:
  using RequestReader::RequestReader;
  // The first descriptor that came and was not taken yet. Failure(kInput) if none came.
  Descriptor TakeDescriptor();

 protected:
  ssize_t Receive(void* data, size_t size) override;

 private:
  std::deque<Descriptor> came_;
};

// What a service tells systemd, by the datagrams of sd_notify(3), without its library.
class Notifier {
 public:
  // Takes $NOTIFY_SOCKET and $WATCHDOG_USEC; without them nobody is told anything.
  Notifier();
  // Such as READY=1. A message that cannot be sent is not a failure.
  void Tell(const std::string& state) const;
  // How often WATCHDOG=1 is expected at least; nothing if it is not.
  std::optional<std::chrono::milliseconds> watchdog() const { return watchdog_; }

 private:
  Descriptor socket_;
  std::string address_;  // of a socket; a null byte begins the name of one that has no file
  std::optional<std::chrono::milliseconds> watchdog_;
};

}  // namespace agent
