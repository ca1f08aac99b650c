#include "rpc_session.h"

#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/runtime/c_backend_api.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "device.h"
#include "failure.h"
#include "machine.h"
#include "subnormals.h"

namespace agent {

namespace ffi = tvm::ffi;

std::string WorkPath(const std::string& folder, const std::string& name) {
  const std::string plain = std::filesystem::path(name).filename().string();
  if (plain.empty() || plain == "." || plain == "..") {
    throw Failure(Code::kOther, "'" + name + "' is not a file name");
  }
  return folder + "/" + plain;
}

namespace {

// TVM's `threading::ThreadGroup::AffinityMode`: the fast cores.
constexpr int kFastCores = 1;

// What clients send is run by TVM's own pool, tied to no core and without subnormals. TVM takes the most threads that
// there may be from the environment, when the pool is made.
void StartThreads(int threads) {
  setenv("TVM_BIND_THREADS", "0", 0);
  setenv("TVM_NUM_THREADS", std::to_string(threads).c_str(), 0);
  FlushSubnormals();
  ffi::Function::GetGlobalRequired("runtime.config_threadpool")(kFastCores, threads);
  // One task for each thread of the pool. They inherit the mode on Linux, but no document says so.
  const auto flush = [](int, TVMParallelGroupEnv*, void*) {
    FlushSubnormals();
    return 0;
  };
  TVMBackendParallelLaunch(flush, nullptr, 0);
}

}  // namespace

int ServeSession(int connection, const std::string& folder, int threads) {
  try {
    StartThreads(threads > 0 ? threads : Processors());
    ffi::reflection::GlobalDef()
        .def("tvm.rpc.server.workpath", [folder](const std::string& name) { return WorkPath(folder, name); })
        .def("tvm.rpc.server.load_module",
             [folder](const std::string& name) { return ffi::Module::LoadFromFile(WorkPath(folder, name)); })
        .def("edgedeploy.opencl_device", [](const std::string& stated) { return FindDevice(stated).device_id; })
        .def("edgedeploy.target.facts", [] { return ffi::String(Facts(".").Dump()); });
    ffi::Function::GetGlobalRequired("rpc.ServerLoop")(connection);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "agent: the session failed: %s\n", Printable(error.what(), true).c_str());
    return 1;
  }
}

void ReturnTimeout(int connection, double limit_s) {
  // The client looks for this beginning.
  const std::string message = "RPCSessionTimeoutError: the session took longer than " + std::to_string(limit_s) +
                              " s; try to increase the \"session_timeout\" value.";
  try {
    ffi::Function::GetGlobalRequired("rpc.ReturnException")(connection, ffi::String(message));
  } catch (const std::exception&) {
    // The client is gone as well.
  }
}

}  // namespace agent
