// SPDX-License-Identifier: Apache-2.0
#include "backend/dsa/queue/descriptor.h"

namespace headrace::dsa {

std::string_view to_string(Opcode opcode) {
  switch (opcode) {
    case Opcode::noop: return "noop";
    case Opcode::batch: return "batch";
    case Opcode::drain: return "drain";
    case Opcode::memmove: return "memmove";
    case Opcode::fill: return "fill";
    case Opcode::compare: return "compare";
    case Opcode::compare_pattern: return "compare_pattern";
    case Opcode::create_delta: return "create_delta";
    case Opcode::apply_delta: return "apply_delta";
    case Opcode::dualcast: return "dualcast";
    case Opcode::translation_fetch: return "translation_fetch";
    case Opcode::crc: return "crc";
    case Opcode::copy_crc: return "copy_crc";
    case Opcode::gather_copy: return "gather_copy";
    case Opcode::scatter_copy: return "scatter_copy";
    case Opcode::cache_flush: return "cache_flush";
  }
  return "unknown";
}

std::string_view to_string(Code code) {
  switch (code) {
    case Code::none: return "not completed";
    case Code::success: return "success";
    case Code::success_false: return "success with an unexpected result";
    case Code::page_fault: return "page fault";
    case Code::page_request_refused: return "page request refused";
    case Code::batch_failed: return "an operation of the batch failed";
    case Code::batch_list_fault: return "page fault in the descriptor list";
    case Code::delta_offset_order: return "offsets of the delta record do not increase";
    case Code::delta_offset_range: return "an offset of the delta record is out of range";
    case Code::bad_opcode: return "unsupported operation";
    case Code::bad_flags: return "invalid flags";
    case Code::reserved_field: return "a reserved field is not 0";
    case Code::bad_size: return "invalid transfer size";
    case Code::bad_count: return "invalid descriptor count";
    case Code::bad_value: return "a value is out of range";
    case Code::overlap: return "buffers overlap";
    case Code::dualcast_alignment: return "the destinations of a dualcast differ in bits 11:0";
    case Code::list_alignment: return "the descriptor list is not aligned to 64 bytes";
    case Code::bad_interrupt: return "invalid interrupt handle";
    case Code::record_fault: return "page fault at the completion record";
    case Code::record_alignment: return "the completion record is not aligned to 32 bytes";
    case Code::bad_alignment: return "an address or size is not aligned";
    case Code::privilege: return "privilege error";
    case Code::traffic_class: return "invalid traffic class";
    case Code::readback_fault: return "page fault at a readback address";
    case Code::hardware: return "hardware error";
  }
  return "unknown";
}

}  // namespace headrace::dsa
