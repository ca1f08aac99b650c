// Memory that a program shares with a service: frames and values go from one to the other without a socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "files.h"
#include "protocol.h"

namespace agent {

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
  // The first descriptor that came and was not taken yet. Failure(kInput) if there is none.
  Descriptor TakeDescriptor();

 protected:
  ssize_t Receive(void* data, size_t size) override;

 private:
  std::deque<Descriptor> came_;
};

}  // namespace agent
