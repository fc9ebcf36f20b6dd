// SPDX-License-Identifier: Apache-2.0
#pragma once

// The public interface: everything that a program which links spdkfac::spdkfac needs. Headers that
// this one does not include are internal and not installed.

// Training: K-FAC for a model of LibTorch, on one rank or many, and its steps as CUDA graphs.
#include "spdkfac/runtime/curvature.h"
#include "spdkfac/runtime/describe.h"
#include "spdkfac/runtime/distribution.h"
#include "spdkfac/runtime/graph_steps.h"
#include "spdkfac/runtime/kfac_options.h"
#include "spdkfac/runtime/kfac_state.h"
#include "spdkfac/runtime/preconditioner.h"
#include "spdkfac/runtime/presets.h"
#include "spdkfac/runtime/step_control.h"
#include "spdkfac/runtime/update.h"

// Communicators.
#include "spdkfac/comm/c10d.h"
#include "spdkfac/comm/communicator.h"
#include "spdkfac/comm/emulated_link.h"
#include "spdkfac/comm/mpi.h"
#include "spdkfac/comm/nccl.h"
#include "spdkfac/comm/threads.h"

// Planning and prediction: layer tables, cost models, plans, simulated steps.
#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/layer_spec.h"
#include "spdkfac/plan/plan.h"
#include "spdkfac/plan/plan_options.h"
#include "spdkfac/plan/planner.h"
#include "spdkfac/sim/auto_planner.h"
#include "spdkfac/sim/predict.h"
#include "spdkfac/sim/simulator.h"

// Errors, the log and the version.
#include "spdkfac/base/error.h"
#include "spdkfac/base/log.h"
#include "spdkfac/version.h"
