// SPDX-License-Identifier: Apache-2.0
// What the emulator shares with the library that drives devices: the formats, and the interface of
// a portal. How an operation is executed it does not share: it is what the library is tested
// against.
#pragma once

#include "backend/dsa/dsa.h"

namespace headrace::emulator {

using dsa::Code;
using dsa::Descriptor;
using dsa::GeneralCapabilities;
using dsa::Opcode;
using dsa::Opcodes;
using dsa::OpenPortal;
using dsa::Portal;
using dsa::Record;
using dsa::WorkQueue;
namespace flag = dsa::flag;

}  // namespace headrace::emulator
