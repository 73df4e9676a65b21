---------------------------- MODULE PromptLeases ----------------------------
(***************************************************************************)
(* How long a handoff lasts, a lease is without a reader, and a fleet      *)
(* without a leader, if each worker that is awake does within a tick what  *)
(* it has to do. So "at last" becomes a number of ticks, which TLC checks  *)
(* far faster than what holds for ever, and so with failures, too.         *)
(***************************************************************************)
EXTENDS LedLeases

CONSTANTS
    LongestHandoff, \* ticks until a handoff has ended
    LongestUnread,  \* ticks until a lease without a reader is held
    LongestUnled    \* ticks until a fleet without a leader has one

VARIABLES
    handing,   \* of each lease: ticks since its handoff began
    unread,    \* of each lease: ticks since a worker that is awake held it
    unled      \* ticks since a worker that is awake held the lock

promptVars == <<ledVars, handing, unread, unled>>

PromptInit ==
    /\ LedInit
    /\ handing = [l \in Leases |-> 0]
    /\ unread = [l \in Leases |-> 0]
    /\ unled = 0

(* What a worker does before the next tick: it is started, sees the mode,  *)
(* looks at what has changed, releases what is requested, takes or assigns *)
(* what it may.                                                            *)
HasTo(w) ==
    \/ state[w] = "new"
    \/ IsFree(w) /\ sees[w] # mode
    \/ /\ IsFree(w)
       /\ \E l \in Leases :
           \/ known[w][l] # Scanned(w, l)
           \/ IsHeld(w, l) /\ HandoffTo(w, l)
           \/ IF sees[w] = "taken" THEN MayTake(w, l) ELSE MayGet(w, l) \/ MayAssign(w, l)

HasToLead(w) ==
    /\ IsIdle(w) /\ state[w] = "up" /\ sees[w] = "led"
    /\ IF lead[w].leads THEN ~IsLeader(w) ELSE ~lead[w].same \/ MayAcquire(w)

IsUp == \E w \in Workers : state[w] = "up"
IsRead(l) == \E w \in Workers : IsAwake(w) /\ IsHeld(w, l)
IsLed == \E w \in Workers : IsAwake(w) /\ IsLeader(w)

(* A leader knows by the rows of metrics who is awake, and moves no lease  *)
(* again that it has just moved: lease.assignment.moves.lately.            *)
IsSensible(f) ==
    /\ f.op \in {"assign", "request"} => state[f.to] = "up"
    /\ f.op = "request" => IsRead(f.lease)

SendsSensibly ==
    \A w \in Workers : flight[w] = Nothing /\ IsSent(flight'[w]) => IsSensible(flight'[w])

-----------------------------------------------------------------------------

(* ticks: 1 in a tick, 0 in any other step.                                *)
Count(ticks) ==
    /\ handing' = [l \in Leases |->
           IF row'[l].by # None /\ ~row'[l].done /\ IsUp'
           THEN Min(handing[l] + ticks, LongestHandoff + 1) ELSE 0]
    /\ unread' = [l \in Leases |->
           IF row'[l].exists /\ ~row'[l].done /\ ~IsRead(l)' /\ IsUp'
           THEN Min(unread[l] + ticks, LongestUnread + 1) ELSE 0]
    /\ unled' =
           IF Leader = "holder" /\ mode' = "led" /\ ~IsLed' /\ IsUp'
           THEN Min(unled + ticks, LongestUnled + 1) ELSE 0

PromptNext ==
    \/ LedTick /\ (\A w \in Workers : ~HasTo(w)) /\ Count(1)
    \/ (OfLeases \/ OfLives) /\ SendsSensibly /\ Count(0)

PromptSpec == PromptInit /\ [][PromptNext]_promptVars

(* The lock alone.                                                         *)
PromptLockNext ==
    \/ LedTick /\ (\A w \in Workers : state[w] # "new" /\ ~HasToLead(w)) /\ Count(1)
    \/ (OfTheLock \/ OfLives) /\ Count(0)

PromptLockSpec == PromptInit /\ [][PromptLockNext]_promptVars

-----------------------------------------------------------------------------
(* What has to hold, besides the invariants of Leases and LedLeases.       *)

(* Every handoff ends, or is taken back.                                   *)
HandoffEnds == \A l \in Leases : handing[l] <= LongestHandoff

(* Every lease is owned again.                                             *)
OwnedAgain == \A l \in Leases : unread[l] <= LongestUnread

(* A leader that is gone is replaced.                                      *)
LedAgain == unled <= LongestUnled
=============================================================================
