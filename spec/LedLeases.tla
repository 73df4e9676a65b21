----------------------------- MODULE LedLeases -----------------------------
(***************************************************************************)
(* A fleet whose leader says which worker reads which shard, as the KCL    *)
(* since 3.0 does, on the rows and conditional writes of Leases.           *)
(*                                                                         *)
(* A leader assigns what is expired or has no owner, and hands on what is  *)
(* alive. A follower adopts the rows that name it, and lets go of what is  *)
(* requested; it takes what has no live owner only if nobody leads, as far *)
(* as it can know. A fleet in which workers take leases becomes a led one  *)
(* while its workers run, and they learn of it at different times.         *)
(*                                                                         *)
(* The leader is the worker that holds the lock. Each write to the lock    *)
(* gives it a new version, of which workers know whether they know it. A   *)
(* holder acts in rounds: it may act for a while after it lost the lock.   *)
(***************************************************************************)
EXTENDS Leases

CONSTANTS
    Begin,      \* the fleet's mode at first: "taken" or "led"
    Leader,     \* who leads: the "holder" of the lock; else the lock is left out, and "anyone" leads
                \*   at any time, or always "one" of the workers that are there
    Lock        \* ticks until a lock that is not renewed is acquired

VARIABLES
    mode,      \* the fleet's mode row: workers take leases, or a leader assigns them
               \*   (lease.assignment.coordinator_state.Sharing)
    sees,      \* of each worker: the mode as it last saw it
    lock,      \* the lock's owner; None if there is no lock, or if it is released
    lead,      \* of each worker: whether it believes that it leads; whether it knows the lock's
               \*   version; and its age: ticks since the holder SENT its last successful write,
               \*   or since another worker first saw the version
    asks,      \* of each worker: the write to the lock that it has sent, and waits for
    lateAsk    \* one without an answer that is still on its way

ofLock == <<lock, lead, asks, lateAsk>>
ofLeader == <<mode, sees, lock, lead, asks, lateAsk>>
ofLeases == <<row, state, known, held, age, waited, flight, late, landed, overtaken, reads>>
ledVars == <<vars, ofLeader>>

Follower == [leads |-> FALSE, same |-> FALSE, age |-> 0]

LedInit ==
    /\ Init
    /\ mode = Begin
    /\ sees = [w \in Workers |-> "taken"]
    /\ lock = None
    /\ lead = [w \in Workers |-> Follower]
    /\ asks = [w \in Workers |-> Nothing]
    /\ lateAsk = Nothing

IsLeader(w) == lead[w].leads /\ lead[w].age <= Lock     \* lease.assignment.coordinator_state.HeldLock.leads
Leads(w) ==                                             \* it may be in a round
    /\ state[w] = "up" /\ sees[w] = "led"
    /\ CASE Leader = "holder" -> lead[w].leads
         [] Leader = "one" -> w = CHOOSE v \in Workers : state[v] = "up"
         [] OTHER -> TRUE

-----------------------------------------------------------------------------
(* The mode.                                                               *)

Change ==
    /\ mode = "taken" /\ mode' = "led"
    /\ UNCHANGED <<vars, sees, ofLock>>

LedStart(w) ==
    /\ Start(w)
    /\ sees' = [sees EXCEPT ![w] = mode]
    /\ UNCHANGED <<mode, ofLock>>

See(w) ==
    /\ IsAwake(w) /\ sees[w] # mode
    /\ sees' = [sees EXCEPT ![w] = mode]
    /\ UNCHANGED <<vars, mode, ofLock>>

-----------------------------------------------------------------------------
(* What a worker does by a look at the table.                              *)

IsOpen(l) == row[l].exists /\ ~row[l].done
IsNamed(w, l) == state[w] = "up" /\ IsOpen(l) /\ ~held[w][l] /\ row[l].owner = w

MayAdopt(w, l) == IsNamed(w, l) /\ row[l].by = None

(* A handoff to this worker that its owner does not end.                   *)
MayEndHandoff(w, l) ==
    /\ IsNamed(w, l) /\ row[l].by # None /\ ScannedWait(w, l) > Overdue
    /\ Fault # "handoff given up by both"

(* Without a lock, a worker may believe at any time that nobody leads.     *)
MayAcquire(w) ==                            \* lease.assignment.coordinator_state.can_acquire
    \/ lock = None
    \/ /\ lead[w].same
       /\ IF Fault = "lock acquired too early" THEN lead[w].age >= Lock ELSE lead[w].age > Lock
IsAlone(w) == Leader = "anyone" \/ (Leader = "holder" /\ ~lead[w].leads /\ MayAcquire(w))

(* lease.rules.taker.Reach                                                 *)
MayGet(w, l) == MayAdopt(w, l) \/ MayEndHandoff(w, l) \/ (IsAlone(w) /\ MayTake(w, l))

(* What a leader sees of a lease that it does not hold. By an old look, it *)
(* would overlook that the owner has renewed the lease.                    *)
SeenAge(w, l) == IF Fault = "assigned by an old look" THEN age[w][l] ELSE ScannedAge(w, l)
IsExpired(w, l) ==
    /\ row[l].owner # None /\ SeenAge(w, l) > Failover
    /\ row[l].by = None \/ Fault # "handoff given up by both"
IsTooLate(w, l) ==
    /\ row[l].by # None /\ ScannedWait(w, l) > Overdue + Failover
    /\ Fault # "handoff given up by both"

(* lease.assignment.assigner.Assigner: by the counter and the owners of    *)
(* this scan (lease.table.requests.assign_vacant; see Holds).              *)
MayAssign(w, l) ==
    /\ Leads(w) /\ IsOpen(l) /\ ~held[w][l]
    /\ row[l].owner = None \/ IsExpired(w, l) \/ IsTooLate(w, l)

MayHandOn(w, l, to) ==
    /\ Leads(w) /\ IsOpen(l)
    /\ row[l].owner \notin {None, to} /\ row[l].by = None /\ ~IsExpired(w, l)

MayGiveBack(w, l) == Leads(w) /\ IsOpen(l) /\ ~held[w][l] /\ IsTooLate(w, l)

(* lease.acquisitions.Acquisitions.withdraw, by a worker that ends: what   *)
(* it was given, and has not adopted.                                      *)
MayReturn(w, l) ==
    state[w] = "leaving" /\ IsOpen(l) /\ ~held[w][l] /\ row[l].owner = w /\ row[l].by = None

AsSeen(l) == [owner |-> row[l].owner, by |-> row[l].by, same |-> TRUE]
Gets(w, l) == MayGet(w, l) /\ Send(w, "take", l, w, AsSeen(l))
Assigns(w, l, to) == MayAssign(w, l) /\ Send(w, "assign", l, to, AsSeen(l))
HandsOn(w, l, to) == MayHandOn(w, l, to) /\ Send(w, "request", l, to, AsSeen(l))
GivesBack(w, l) == (MayGiveBack(w, l) \/ MayWithdraw(w, l)) /\ Send(w, "withdraw", l, None, AsSeen(l))
Returns(w, l) == MayReturn(w, l) /\ Send(w, "release", l, None, AsSeen(l))

LedScan(w) ==
    IF sees[w] = "taken" THEN Scan(w) ELSE
        /\ Look(w)
        /\ \/ UNCHANGED flight
           \/ \E l \in Leases :
               \/ Gets(w, l)
               \/ GivesBack(w, l)
               \/ Returns(w, l)
               \/ \E to \in Workers : Assigns(w, l, to) \/ HandsOn(w, l, to)

(* The planted fault: the owner stops, and leaves the rest to the other.   *)
GiveUpSilently(w, l) ==
    /\ Fault = "handoff given up by both" /\ IsFree(w) /\ IsHeld(w, l) /\ HandoffTo(w, l)
    /\ held' = [held EXCEPT ![w][l] = FALSE]
    /\ known' = [known EXCEPT ![w][l] = Unseen]
    /\ age' = [age EXCEPT ![w][l] = 0]
    /\ reads' = [reads EXCEPT ![w] = @ \ {l}]
    /\ UNCHANGED <<row, state, waited, flight, late, landed, overtaken, failures>>

-----------------------------------------------------------------------------
(* The lock: a worker sends writes to it.                                  *)

Ask(w, op) == asks' = [asks EXCEPT ![w] = [op |-> op, is |-> "sent", same |-> lead[w].same, age |-> 0]]
IsIdle(w) == Leader = "holder" /\ IsAwake(w) /\ asks[w] = Nothing

LookAtLock(w) ==
    /\ IsIdle(w) /\ ~lead[w].leads /\ ~lead[w].same /\ sees[w] = "led"
    /\ lead' = [lead EXCEPT ![w].same = TRUE, ![w].age = 0]
    /\ UNCHANGED <<vars, mode, sees, lock, asks, lateAsk>>

Acquire(w) ==
    /\ IsIdle(w) /\ state[w] = "up" /\ sees[w] = "led" /\ ~lead[w].leads /\ MayAcquire(w)
    /\ Ask(w, "acquire")
    /\ UNCHANGED <<vars, mode, sees, lock, lead, lateAsk>>

Beat(w) ==
    /\ IsIdle(w) /\ IsLeader(w) /\ lead[w].age > 0
    /\ Ask(w, "beat")
    /\ UNCHANGED <<vars, mode, sees, lock, lead, lateAsk>>

(* The belief ends before the write is sent, as with a lease.              *)
Unlock(w) ==
    /\ IsIdle(w) /\ state[w] = "leaving" /\ lead[w].leads
    /\ Ask(w, "unlock")
    /\ lead' = [lead EXCEPT ![w] = Follower]
    /\ UNCHANGED <<vars, mode, sees, lock, lateAsk>>

(* A holder notices that it was too late, after whatever it did meanwhile. *)
Notice(w) ==
    /\ IsIdle(w) /\ lead[w].leads /\ ~IsLeader(w)
    /\ lead' = [lead EXCEPT ![w] = Follower]
    /\ UNCHANGED <<vars, mode, sees, lock, asks, lateAsk>>

-----------------------------------------------------------------------------
(* The lock's row executes a write, or refuses it. Conditions:             *)
(* lease.assignment.coordinator_state.acquire_expects, of a released lock:  *)
(* that it is released; lease.assignment.coordinator_state.owner_expects.   *)

LockHolds(f) == f.same \/ (f.op = "acquire" /\ lock = None)
Locked(w, f) == IF f.op = "unlock" THEN None ELSE w
NoneSame(keeps) == [v \in Workers |-> IF v = keeps THEN lead[v] ELSE
    IF lead[v].leads THEN [lead[v] EXCEPT !.same = FALSE] ELSE Follower]
OldAsk(g) == IF g = Nothing THEN g ELSE [g EXCEPT !.same = FALSE]

ExecuteAsk(w) ==
    LET f == asks[w] IN
    /\ f # Nothing /\ f.is = "sent" /\ LockHolds(f)
    /\ lock' = Locked(w, f)
    /\ lead' = NoneSame(w)
    /\ asks' = [v \in Workers |->
           IF v = w THEN [f EXCEPT !.is = "executed", !.same = TRUE] ELSE OldAsk(asks[v])]
    /\ lateAsk' = OldAsk(lateAsk)
    /\ UNCHANGED <<vars, mode, sees>>

ReceiveAsk(w) ==
    LET f == asks[w]
        leads == f.op # "unlock" /\ f.age <= Lock /\ (f.op = "acquire" \/ lead[w].leads)
    IN
    /\ f # Nothing /\ f.is = "executed" /\ IsAwake(w)
    /\ asks' = [asks EXCEPT ![w] = Nothing]
    /\ lead' = [lead EXCEPT ![w] =
           IF leads THEN [leads |-> TRUE, same |-> f.same, age |-> f.age] ELSE Follower]
    /\ UNCHANGED <<vars, mode, sees, lock, lateAsk>>

RefuseAsk(w) ==
    /\ asks[w] # Nothing /\ asks[w].is = "sent" /\ IsAwake(w) /\ ~LockHolds(asks[w])
    /\ asks' = [asks EXCEPT ![w] = Nothing]
    /\ lead' = [lead EXCEPT ![w] = Follower]
    /\ UNCHANGED <<vars, mode, sees, lock, lateAsk>>

LoseAsk(w) ==
    /\ Fail /\ asks[w] # Nothing /\ asks[w].is = "executed"
    /\ asks' = [asks EXCEPT ![w] = Nothing]
    /\ lead' = [lead EXCEPT ![w].same = FALSE]
    /\ UNCHANGED <<ofLeases, mode, sees, lock, lateAsk>>

Later(w) == [asks[w] EXCEPT !.age = 0] @@ [worker |-> w]

GiveUpAsk(w) ==
    /\ Fail /\ asks[w] # Nothing /\ asks[w].is = "sent" /\ lateAsk = Nothing
    /\ lateAsk' = Later(w)
    /\ asks' = [asks EXCEPT ![w] = Nothing]
    /\ UNCHANGED <<ofLeases, mode, sees, lock, lead>>

ArriveAsk ==
    /\ lateAsk # Nothing
    /\ lateAsk' = Nothing
    /\ \/ UNCHANGED <<lock, lead, asks>>
       \/ /\ LockHolds(lateAsk)
          /\ lock' = Locked(lateAsk.worker, lateAsk)
          /\ lead' = NoneSame(None)
          /\ asks' = [v \in Workers |-> OldAsk(asks[v])]
    /\ UNCHANGED <<vars, mode, sees>>

-----------------------------------------------------------------------------
(* A worker that is gone, and time. A holder that is awake renews in time. *)

Led(w) ==
    /\ sees' = [sees EXCEPT ![w] = "taken"]
    /\ lead' = [lead EXCEPT ![w] = Follower]
    /\ asks' = [asks EXCEPT ![w] = Nothing]
    /\ UNCHANGED <<mode, lock>>

LedCrash(w) ==
    /\ Crash(w) /\ Led(w)
    /\ \/ lateAsk = Nothing /\ asks[w] # Nothing /\ asks[w].is = "sent" /\ lateAsk' = Later(w)
       \/ UNCHANGED lateAsk

LedEnd(w) ==
    /\ ~lead[w].leads /\ asks[w] = Nothing
    /\ End(w) /\ Led(w) /\ UNCHANGED lateAsk

IsLockDue(w) ==
    /\ IsAwake(w)
    /\ \/ asks[w] # Nothing /\ asks[w].age > 0
       \/ IsLeader(w) /\ lead[w].age >= Lock

LedTick ==
    /\ Tick /\ \A w \in Workers : ~IsLockDue(w)
    /\ lead' = [w \in Workers |->
           IF lead[w].leads \/ lead[w].same
           THEN [lead[w] EXCEPT !.age = Min(@ + 1, Lock + 1)] ELSE lead[w]]
    /\ asks' = [w \in Workers |->
           IF asks[w] = Nothing THEN Nothing ELSE [asks[w] EXCEPT !.age = Min(@ + 1, Lock + 1)]]
    /\ UNCHANGED <<mode, sees, lock, lateAsk>>

-----------------------------------------------------------------------------

OfTheLock ==
    \/ ArriveAsk
    \/ \E w \in Workers :
        \/ LookAtLock(w) \/ Acquire(w) \/ Beat(w) \/ Unlock(w) \/ Notice(w)
        \/ ExecuteAsk(w) \/ ReceiveAsk(w) \/ RefuseAsk(w) \/ LoseAsk(w) \/ GiveUpAsk(w)

OfLives ==
    \/ Change
    \/ \E w \in Workers :
        \/ LedStart(w) \/ See(w) \/ LedCrash(w) \/ LedEnd(w)
        \/ (Sleep(w) \/ Wake(w) \/ Leave(w)) /\ UNCHANGED ofLeader

OfWorkers == LedTick \/ OfLives

OfLeases ==
    /\ \/ Arrive
       \/ \E w \in Workers :
           \/ LedScan(w) \/ Sync(w) \/ EndShard(w) \/ Execute(w) \/ Receive(w) \/ Refuse(w)
           \/ LoseAnswer(w) \/ GiveUp(w)
           \/ \E l \in Leases :
               Renew(w, l) \/ Release(w, l) \/ Read(w, l) \/ GiveUpSilently(w, l)
    /\ UNCHANGED ofLeader

LedNext == OfWorkers \/ OfLeases \/ OfTheLock

LedSpec == LedInit /\ [][LedNext]_ledVars

(* The lock alone.                                                         *)
LockNext == OfWorkers \/ OfTheLock
LockSpec == LedInit /\ [][LockNext]_ledVars

-----------------------------------------------------------------------------
(* What has to hold, besides the invariants of Leases.                     *)

(* Two workers never both hold the lock, as far as they can know.          *)
OneLeader == Cardinality({w \in Workers : IsLeader(w)}) <= 1
=============================================================================
