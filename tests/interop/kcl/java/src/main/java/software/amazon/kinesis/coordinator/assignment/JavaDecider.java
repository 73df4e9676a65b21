package software.amazon.kinesis.coordinator.assignment;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import software.amazon.kinesis.leases.Lease;
import software.amazon.kinesis.leases.LeaseManagementConfig;
import software.amazon.kinesis.metrics.NullMetricsScope;
import software.amazon.kinesis.worker.metricstats.WorkerMetricStats;

/**
 * Lets the KCL assign the leases of fleets that it reads from its standard input.
 *
 * <p>The package is the KCL's, because its rule takes a class that is visible only there. Lines are
 * {@code worker ID [METRIC VALUE LIMIT]...}, {@code lease KEY OWNER KBPS INSTANT}, in which a minus
 * is no value and the instant is that of a vacant lease, and {@code plan}. A plan is answered by
 * {@code assigned KEY ID}, {@code balanced KEY ID} for what one run moves, and {@code end}.
 */
final class JavaDecider {
    public static void main(final String[] args) {
        List<Lease> leases = new ArrayList<>();
        List<WorkerMetricStats> workers = new ArrayList<>();
        final Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            final String[] words = lines.nextLine().split(" ");
            switch (words[0]) {
                case "worker" -> workers.add(worker(words));
                case "lease" -> leases.add(lease(words));
                default -> {
                    plan(leases, workers);
                    leases = new ArrayList<>();
                    workers = new ArrayList<>();
                }
            }
        }
    }

    private static WorkerMetricStats worker(final String[] words) {
        final Map<String, List<Double>> stats = new HashMap<>();
        final Map<String, List<Long>> limits = new HashMap<>();
        for (int at = 2; at < words.length; at += 3) {
            stats.put(words[at], List.of(Double.valueOf(words[at + 1])));
            limits.put(words[at], List.of(Long.valueOf(words[at + 2])));
        }
        return WorkerMetricStats.builder()
                .workerId(words[1])
                .metricStats(stats)
                .operatingRange(limits)
                .build();
    }

    private static Lease lease(final String[] words) {
        final Lease lease = new Lease();
        lease.leaseKey(words[1]);
        if (!words[2].equals("-")) {
            lease.leaseOwner(words[2]);
        }
        if (!words[3].equals("-")) {
            lease.throughputKBps(Double.parseDouble(words[3]));
        }
        if (!words[4].equals("-")) {
            lease.lastCounterIncrementNanos(Long.valueOf(words[4]));
            lease.isExpiredOrUnassigned(true);
        }
        return lease;
    }

    private static void plan(final List<Lease> leases, final List<WorkerMetricStats> workers) {
        final LeaseManagementConfig.WorkerUtilizationAwareAssignmentConfig config =
                new LeaseManagementConfig.WorkerUtilizationAwareAssignmentConfig();
        final LAMDataManager rows = new LAMDataManager() {
            @Override
            public LAMDataSnapshot loadData(final software.amazon.kinesis.metrics.MetricsScope scope) {
                return LAMDataSnapshot.builder().leases(leases).workerMetricStats(workers).build();
            }

            @Override
            public void shutdown() {}
        };
        final LeaseAssignmentManager leader = new LeaseAssignmentManager(
                null,
                null,
                config,
                "leader",
                10_000L,
                null,
                null,
                System::nanoTime,
                Integer.MAX_VALUE,
                null,
                null,
                20_000L,
                null,
                rows);
        final LeaseAssignmentManager.InMemoryStorageView view = leader.new InMemoryStorageView();
        view.loadInMemoryStorageView(new NullMetricsScope());
        final LeaseAssignmentDecider decider = new VarianceBasedLeaseAssignmentDecider(
                view,
                config.dampeningPercentage(),
                config.reBalanceThresholdPercentage(),
                config.allowThroughputOvershoot());
        final List<Lease> vacant =
                new ArrayList<>(leases.stream().filter(Lease::isExpiredOrUnassigned).toList());
        decider.assignExpiredOrUnassignedLeases(vacant);
        final Map<Lease, String> assigned = new HashMap<>(view.getLeaseToNewAssignedWorkerMap());
        assigned.forEach((lease, to) -> tell("assigned", lease, to));
        decider.balanceWorkerVariance();
        view.getLeaseToNewAssignedWorkerMap().forEach((lease, to) -> {
            if (!to.equals(assigned.get(lease))) {
                tell("balanced", lease, to);
            }
        });
        System.out.println("end");
    }

    private static void tell(final String what, final Lease lease, final String to) {
        System.out.println(what + " " + lease.leaseKey() + " " + to);
    }
}
