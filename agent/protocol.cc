#include "protocol.h"

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <thread>

namespace agent {
namespace {

constexpr size_t kMaximumLine = 65536;
constexpr int64_t kMaximumBytes = int64_t{1} << 30;

Json Described(const std::vector<TensorSpec>& specs) {
  Json json{Json::Array{}};
  for (const TensorSpec& spec : specs) json.Add(spec.Describe());
  return json;
}

}  // namespace

bool RequestReader::Next(Request* request) {
  *request = Request();
  std::string line;
  if (!Line(&line, kMaximumLine)) {
    if (line.empty()) return false;
    const bool ended = line.size() < kMaximumLine;
    throw Failure(Code::kInput,
                  ended ? "the input ended within a request" : "a request's line is longer than 65536 bytes");
  }
  request->body = ParseJson(line);
  const int64_t bytes = NumberOf(request->body, "bytes", 0);
  if (const Json* given = request->body.find("id")) request->id = *given;
  if (bytes < 0 || bytes > kMaximumBytes) throw JsonError("an impossible number of bytes");
  request->bytes = bytes;
  unread_ = static_cast<size_t>(bytes);
  return true;
}

void RequestReader::Bytes(void* data, size_t size) {
  if (!Fill(data, size)) throw Failure(Code::kInput, "the input ended within a request's bytes");
  unread_ -= size;
}

ssize_t RequestReader::Receive(void* data, size_t size) { return read(descriptor_, data, size); }

Descriptor TakeStandardOutput() {
  Descriptor output(dup(STDOUT_FILENO));
  if (!output || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
    throw Failure(Code::kOutput, "cannot write to standard output", SystemError());
  }
  return output;
}

void EndWithReader(int replies) {
  // Of its own, and open until the process ends: readers wait for that before they go.
  std::thread([output = dup(replies)] {
    pollfd reader{output, 0, 0};
    while (poll(&reader, 1, -1) <= 0) continue;
    std::fprintf(stderr, "agent: the reader of the replies is gone\n");
    _exit(static_cast<int>(Code::kOutput));
  }).detach();
}

Json Greeting(const Manifest& manifest, int threads, double load_ms, const std::optional<std::string>& device) {
  const Entry& first = manifest.entries.front();
  Json greeting = Json::NewObject({{"ready", true}, {"protocol", kProtocol}, {"model", manifest.model}});
  greeting.Set("board", manifest.board).Set("threads", threads).Set("load_ms", load_ms);
  greeting.Set("inputs", Described(first.inputs)).Set("outputs", Described(first.outputs));
  if (device) greeting.Set("device", *device);
  if (manifest.entries.size() > 1) {
    Json further{Json::Array{}};
    for (size_t i = 1; i < manifest.entries.size(); ++i) {
      const Entry& each = manifest.entries[i];
      further.Add(Json::NewObject({{"inputs", Described(each.inputs)}, {"outputs", Described(each.outputs)}}));
    }
    greeting.Set("further", std::move(further));
  }
  return greeting;
}

Json Reply(const Json& id, bool ok) {
  Json reply = Json::NewObject();
  if (!id.is_null()) reply.Set("id", id);
  return reply.Set("ok", ok);
}

Json Refusal(const Json& id, Code code, const std::string& error) {
  return Reply(id, false).Set("code", static_cast<int>(code)).Set("error", error);
}

void Send(int descriptor, const Json& message) {
  const std::string line = message.Dump() + "\n";
  WriteAll(descriptor, line.data(), line.size(), "a reply");
}

void RequireInputBytes(int64_t wanted, int64_t announced) {
  if (wanted == announced) return;
  throw Failure(Code::kInput, "the inputs have " + std::to_string(wanted) + " bytes",
                std::to_string(announced) + " were announced");
}

int64_t NumberOf(const Json& request, const char* name, int64_t otherwise) {
  const Json* given = request.find(name);
  return given ? given->integer() : otherwise;
}

int64_t BytesOf(const std::vector<TensorSpec>& specs) {
  int64_t bytes = 0;
  for (const TensorSpec& spec : specs) bytes += static_cast<int64_t>(spec.bytes);
  return bytes;
}

}  // namespace agent
