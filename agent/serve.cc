// `agent serve`: one process that keeps a network loaded, and answers requests on standard input.

#include <unistd.h>

#include "arguments.h"
#include "commands.h"
#include "files.h"
#include "machine.h"
#include "model.h"
#include "protocol.h"

namespace agent {
namespace {

constexpr int64_t kMaximumCount = 1'000'000;

class Server {
 public:
  Server(Model* model, size_t entries, Descriptor output)
      : model_(model), entries_(static_cast<int64_t>(entries)), output_(std::move(output)) {}

  // Serves until the input ends or a request says so.
  void Loop() {
    for (;;) {
      Request request;
      try {
        if (!reader_.Next(&request)) return;
      } catch (const JsonError& error) {
        // Nobody can tell where the next request begins.
        Refuse(request.id, Code::kInput, std::string("invalid request: ") + error.what());
        throw Failure(Code::kInput, "invalid request", error.what());
      } catch (const Failure& failure) {
        Refuse(request.id, failure.code(), failure.what());
        throw;
      }
      ++requests_;
      if (!Answer(request)) return;
    }
  }

 private:
  // Reads the request's bytes and replies. Returns whether there is more to come.
  bool Answer(const Request& request) {
    try {
      const std::string& command = request.body.at("command").text();
      if (const Work work = Inference(command)) {
        const int64_t entry = NumberOf(request.body, "entry", 0);
        if (entry < 0 || entry >= entries_) throw JsonError("entry is out of range");
        model_->Enter(static_cast<size_t>(entry));
        RequireInputBytes(BytesOf(model_->inputs()), request.bytes);
        for (size_t i = 0; i < model_->inputs().size(); ++i) {
          reader_.Bytes(model_->Input(i), model_->inputs()[i].bytes);
        }
        (this->*work)(request.body, request.id);
        return true;
      }
      reader_.Discard();
      if (command == "status") {
        Json reply = Reply(request.id);
        Send(reply.Set("requests", requests_).Set("memory", ProcessMemory()).Set("temperature_c", Temperature()));
        return true;
      }
      if (command == "quit") {
        Send(Reply(request.id));
        return false;
      }
      throw Failure(Code::kInput, "unknown command '" + command + "'");
    } catch (const JsonError& error) {
      Refuse(request.id, Code::kInput, error.what());
    } catch (const Failure& failure) {
      if (failure.code() == Code::kOutput) throw;
      Refuse(request.id, failure.code(), failure.what());
    }
    return true;
  }

  using Work = void (Server::*)(const Json& request, const Json& id);
  // What answers a command that comes with inputs; null for others.
  static Work Inference(const std::string& command) {
    if (command == "run") return &Server::Run;
    if (command == "measure") return &Server::Measured;
    if (command == "measure-end-to-end") return &Server::MeasuredEndToEnd;
    if (command == "profile") return &Server::Profiled;
    return nullptr;
  }

  void Run(const Json&, const Json& id) {
    const auto before = MillisecondsSinceStart();
    model_->Run();
    const double ms = MillisecondsSinceStart() - before;
    Send(Reply(id).Set("ms", ms).Set("bytes", Json(BytesOf(model_->outputs()))));
    for (size_t i = 0; i < model_->outputs().size(); ++i) {
      WriteAll(output_.get(), model_->Output(i), model_->outputs()[i].bytes, "a reply");
    }
  }

  void Measured(const Json& request, const Json& id) {
    const int repeat = Count(request, "repeat", 1, 1);
    const int number = Count(request, "number", 1, 1);
    Json reply = Reply(id);
    AddStatistics(Measure(model_, repeat, number, Count(request, "warmup", 0, 0)), &reply);
    Send(reply);
  }

  void MeasuredEndToEnd(const Json& request, const Json& id) {
    const int repeat = Count(request, "repeat", 1, 1);
    const int warmup = Count(request, "warmup", 0, 0);
    std::vector<double> runs_ms;
    std::vector<double> kernels_ms;
    for (int i = 0; i < warmup; ++i) model_->EndToEndRun();
    for (int i = 0; i < repeat; ++i) {
      const EndToEnd times = model_->EndToEndRun();
      runs_ms.push_back(times.ms);
      if (times.kernels_ms) kernels_ms.push_back(*times.kernels_ms);
    }
    Json reply = Reply(id);
    AddStatistics(runs_ms, &reply);
    if (!kernels_ms.empty()) reply.Set("kernels_ms", Json(Json::Array(kernels_ms.begin(), kernels_ms.end())));
    Send(reply);
  }

  void Profiled(const Json& request, const Json& id) {
    const int repeat = Count(request, "repeat", 1, 1);
    Json functions = Json::NewObject();
    for (const auto& [name, times_ms] : model_->FunctionTimes(repeat, Count(request, "warmup", 0, 0))) {
      functions.Set(name, Json(Json::Array(times_ms.begin(), times_ms.end())));
    }
    Send(Reply(id).Set("functions", functions));
  }

  static int Count(const Json& request, const char* name, int64_t otherwise, int64_t least) {
    const int64_t value = NumberOf(request, name, otherwise);
    if (value < least || value > kMaximumCount) throw JsonError(std::string(name) + " is out of range");
    return static_cast<int>(value);
  }

  void Refuse(const Json& id, Code code, const std::string& error) {
    reader_.Discard();
    Send(Refusal(id, code, error));
  }
  void Send(const Json& reply) { agent::Send(output_.get(), reply); }

  Model* model_;
  int64_t entries_;
  Descriptor output_;
  RequestReader reader_{STDIN_FILENO, "standard input"};
  int64_t requests_ = 0;
};

}  // namespace

Code ServeCommand(const Words& words) {
  const Arguments arguments(words, {"threads"});
  const int asked = arguments.Integer("threads", 0, 1, static_cast<int>(kMaximumCount));
  const Package package(arguments.Only("package"));
  const int threads = ChooseThreads(asked, package.manifest().threads);
  Descriptor output = TakeStandardOutput();
  EndWithReader(output.get());
  const double before_ms = MillisecondsSinceStart();
  Model model(package, threads);
  Send(output.get(), Greeting(package.manifest(), threads, MillisecondsSinceStart() - before_ms, model.Device()));
  Server(&model, package.manifest().entries.size(), std::move(output)).Loop();
  return Code::kDone;
}

}  // namespace agent
