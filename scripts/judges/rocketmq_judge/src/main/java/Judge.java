import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.AckStatus;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.consumer.PopStatus;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.ClientRemotingProcessor;
import org.apache.rocketmq.client.impl.mqclient.MQClientAPIExt;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.RequestResponseFuture;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ChangeInvisibleTimeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.NotificationRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Uses a cluster through the official Java client, case by case: {@code Judge NAMESERVER [CASE...]}. */
public class Judge {
    interface Case {
        void run() throws Exception;
    }

    private static final long PATIENCE_S = 60;
    private static final String RUN = Long.toString(System.currentTimeMillis(), 36);
    private static final Map<String, Case> CASES = new LinkedHashMap<>();

    private static String nameserver;
    private static String name;
    private static final List<AutoCloseable> open = new ArrayList<>();

    static {
        CASES.put("sendSynchronously", Judge::sendSynchronously);
        CASES.put("sendAsynchronously", Judge::sendAsynchronously);
        CASES.put("sendOneWay", Judge::sendOneWay);
        CASES.put("sendBatch", Judge::sendBatch);
        CASES.put("sendLargeBody", Judge::sendLargeBody);
        CASES.put("sendRefused", Judge::sendRefused);
        CASES.put("pull", Judge::pull);
        CASES.put("pushByTags", Judge::pushByTags);
        CASES.put("rebalance", Judge::rebalance);
        CASES.put("offsetsAreKept", Judge::offsetsAreKept);
        CASES.put("ordered", Judge::ordered);
        CASES.put("broadcast", Judge::broadcast);
        CASES.put("litePull", Judge::litePull);
        CASES.put("litePullSeek", Judge::litePullSeek);
        CASES.put("delayLevels", Judge::delayLevels);
        CASES.put("retryAndDeadLetter", Judge::retryAndDeadLetter);
        CASES.put("query", Judge::query);
        CASES.put("transactions", Judge::transactions);
        CASES.put("requestReply", Judge::requestReply);
        CASES.put("filterBySql", Judge::filterBySql);
        CASES.put("timer", Judge::timer);
        CASES.put("recall", Judge::recall);
        CASES.put("popPush", Judge::popPush);
        CASES.put("popRequests", Judge::popRequests);
        CASES.put("popInOrder", Judge::popInOrder);
        CASES.put("popByPriority", Judge::popByPriority);
    }

    public static void main(String[] arguments) throws Exception {
        nameserver = arguments[0];
        Collection<String> wanted = arguments.length > 1
            ? Arrays.asList(arguments).subList(1, arguments.length)
            : CASES.keySet();
        boolean allPassed = true;
        for (String each : wanted) {
            name = "Judge_" + each + "_" + RUN;
            String outcome = "passed";
            try {
                CASES.get(each).run();
            } catch (Throwable fault) {
                allPassed = false;
                StackTraceElement[] trace = fault.getStackTrace();
                String at = Arrays.stream(trace)
                    .filter(frame -> frame.getClassName().equals("Judge") && !frame.getMethodName().equals("check"))
                    .map(frame -> ":" + frame.getLineNumber() + ": ").findFirst().orElse(": ");
                outcome = "failed Judge.java" + at + String.valueOf(fault).replace('\n', ' ');
            }
            for (AutoCloseable closed : open) {
                closed.close();
            }
            open.clear();
            System.out.println("case " + each + " " + outcome);
        }
        System.exit(allPassed ? 0 : 1);
    }

    // -- helpers

    private static void check(boolean holds, Object... told) {
        if (!holds) {
            throw new AssertionError(Arrays.toString(told));
        }
    }

    private static DefaultMQProducer producer() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("P_" + name);
        producer.setNamesrvAddr(nameserver);
        producer.setSendMsgTimeout(20_000);
        producer.setInstanceName(name + open.size());
        producer.start();
        open.add(producer::shutdown);
        return producer;
    }

    private static DefaultMQPushConsumer consumer(String expression) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("C_" + name);
        consumer.setNamesrvAddr(nameserver);
        consumer.setInstanceName(name + open.size());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(name, expression);
        open.add(consumer::shutdown);
        return consumer;
    }

    /** Starts a consumer, which puts the keys of what it gets into `got`. */
    private static DefaultMQPushConsumer consume(String expression, Collection<String> got) throws Exception {
        DefaultMQPushConsumer consumer = consumer(expression);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                got.add(message.getKeys());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private static Message message(int number, String tag) {
        return new Message(name, tag, "k" + number, ("body " + number).getBytes());
    }

    private static void send(DefaultMQProducer producer, int count) throws Exception {
        for (int number = 0; number < count; number++) {
            SendResult sent = producer.send(message(number, number % 2 == 0 ? "even" : "odd"));
            check(sent.getSendStatus() == SendStatus.SEND_OK, sent);
        }
    }

    private interface Condition {
        boolean holds() throws Exception;
    }

    private static void await(Condition condition, Object told) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        while (!condition.holds()) {
            check(System.nanoTime() < deadline, "not within " + PATIENCE_S + " s", told);
            Thread.sleep(20);
        }
    }

    private static List<MessageExt> pullAll(DefaultMQPullConsumer consumer, MessageQueue queue) throws Exception {
        List<MessageExt> found = new ArrayList<>();
        long offset = consumer.minOffset(queue);
        while (offset < consumer.maxOffset(queue)) {
            PullResult result = consumer.pull(queue, "*", offset, 32);
            check(result.getPullStatus() == PullStatus.FOUND, result);
            found.addAll(result.getMsgFoundList());
            offset = result.getNextBeginOffset();
        }
        return found;
    }

    private static DefaultMQAdminExt admin() throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(nameserver);
        admin.setInstanceName(name + open.size());
        admin.start();
        open.add(admin::shutdown);
        return admin;
    }

    private static DefaultMQPullConsumer puller() throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("C_" + name);
        consumer.setNamesrvAddr(nameserver);
        consumer.setInstanceName(name + open.size());
        consumer.start();
        open.add(consumer::shutdown);
        return consumer;
    }

    // -- sending

    private static void sendSynchronously() throws Exception {
        DefaultMQProducer producer = producer();
        Map<Integer, Long> next = new TreeMap<>();
        for (int number = 0; number < 40; number++) {
            SendResult sent = producer.send(message(number, "x"));
            check(sent.getSendStatus() == SendStatus.SEND_OK && sent.getOffsetMsgId().length() == 32, sent);
            int queue = sent.getMessageQueue().getQueueId();
            check(sent.getQueueOffset() == next.getOrDefault(queue, 0L), sent, next);
            next.put(queue, sent.getQueueOffset() + 1);
        }
        check(next.size() == 4, next);
    }

    private static void sendAsynchronously() throws Exception {
        DefaultMQProducer producer = producer();
        send(producer, 1);
        CountDownLatch sent = new CountDownLatch(100);
        List<Throwable> failures = new CopyOnWriteArrayList<>();
        for (int number = 0; number < 100; number++) {
            producer.send(message(number, "x"), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    sent.countDown();
                }

                @Override
                public void onException(Throwable fault) {
                    failures.add(fault);
                    sent.countDown();
                }
            });
        }
        check(sent.await(PATIENCE_S, TimeUnit.SECONDS) && failures.isEmpty(), sent.getCount(), failures);
    }

    private static void sendOneWay() throws Exception {
        DefaultMQProducer producer = producer();
        send(producer, 1);
        for (int number = 1; number < 20; number++) {
            producer.sendOneway(message(number, "x"));
        }
        Set<String> got = ConcurrentHashMap.newKeySet();
        consume("*", got);
        await(() -> got.size() == 20, got);
    }

    private static void sendBatch() throws Exception {
        DefaultMQProducer producer = producer();
        List<Message> batch = new ArrayList<>();
        for (int number = 0; number < 10; number++) {
            batch.add(message(number, "x"));
        }
        SendResult sent = producer.send(batch);
        check(sent.getSendStatus() == SendStatus.SEND_OK, sent);
        check(sent.getOffsetMsgId().split(",").length == 10 && sent.getMsgId().split(",").length == 10, sent);
        List<MessageExt> found = pullAll(puller(), sent.getMessageQueue());
        check(found.size() == 10 && new String(found.get(9).getBody()).equals("body 9"), found);
    }

    private static void sendLargeBody() throws Exception {
        DefaultMQProducer producer = producer();
        byte[] body = new byte[1 << 20];
        for (int at = 0; at < body.length; at++) {
            body[at] = (byte) (at % 251);
        }
        SendResult sent = producer.send(new Message(name, body));
        List<MessageExt> found = pullAll(puller(), sent.getMessageQueue());
        check(Arrays.equals(found.get(0).getBody(), body), found.get(0).getBody().length);
    }

    private static void sendRefused() throws Exception {
        DefaultMQProducer producer = producer();
        try {
            producer.send(new Message("SCHEDULE_TOPIC_XXXX", "x".getBytes()));
        } catch (MQClientException | MQBrokerException refusal) {
            check(refusal.getMessage().contains("forbidden"), refusal);
            return;
        }
        check(false, "taken");
    }

    // -- consuming

    private static void pull() throws Exception {
        DefaultMQProducer producer = producer();
        send(producer, 20);
        DefaultMQPullConsumer consumer = puller();
        int count = 0;
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(name)) {
            count += pullAll(consumer, queue).size();
            long end = consumer.maxOffset(queue);
            check(consumer.searchOffset(queue, 0) == 0 && consumer.earliestMsgStoreTime(queue) > 0, queue);
            check(consumer.pull(queue, "*", end + 5, 1).getPullStatus() == PullStatus.OFFSET_ILLEGAL, queue);
            check(consumer.pull(queue, "none", 0, 32).getPullStatus() == PullStatus.NO_MATCHED_MSG, queue);
        }
        check(count == 20, count);
    }

    private static void pushByTags() throws Exception {
        DefaultMQProducer producer = producer();
        send(producer, 1);
        List<String> got = new CopyOnWriteArrayList<>();
        consume("odd || other", got);
        for (int number = 1; number < 30; number++) {
            producer.send(message(number, new String[] {"even", "odd", "other"}[number % 3]));
        }
        await(() -> got.size() >= 20, got);
        check(got.size() == 20 && new HashSet<>(got).size() == 20, got);
    }

    private static void rebalance() throws Exception {
        DefaultMQProducer producer = producer();
        send(producer, 4);
        Set<String> first = ConcurrentHashMap.newKeySet();
        Set<String> second = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer one = consume("*", first);
        await(() -> first.size() == 4, first);
        DefaultMQPushConsumer two = consume("*", second);
        await(() -> one.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
            .filter(queue -> queue.getTopic().equals(name)).count() == 2, one);
        await(() -> two.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
            .filter(queue -> queue.getTopic().equals(name)).count() == 2, two);
        for (int number = 4; number < 44; number++) {
            producer.send(message(number, "x"));
        }
        await(() -> first.size() + second.size() >= 44, Arrays.asList(first, second));
        check(!second.isEmpty(), second);
        two.shutdown();
        for (int number = 44; number < 64; number++) {
            producer.send(message(number, "x"));
        }
        Set<String> all = new HashSet<>();
        await(() -> all.addAll(first) | all.addAll(second) | all.size() >= 64 && all.size() >= 64, all);
    }

    private static void offsetsAreKept() throws Exception {
        DefaultMQProducer producer = producer();
        send(producer, 10);
        Set<String> got = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer first = consume("*", got);
        await(() -> got.size() == 10, got);
        first.shutdown();
        for (int number = 10; number < 15; number++) {
            producer.send(message(number, "x"));
        }
        List<String> later = new CopyOnWriteArrayList<>();
        consume("*", later);
        await(() -> later.size() >= 5, later);
        Thread.sleep(500);
        check(new HashSet<>(later).equals(new HashSet<>(Arrays.asList("k10", "k11", "k12", "k13", "k14"))), later);
    }

    private static void ordered() throws Exception {
        DefaultMQProducer producer = producer();
        for (int number = 0; number < 40; number++) {
            producer.send(message(number, "x"), (queues, it, key) -> queues.get((Integer) key % queues.size()), number % 4);
        }
        Map<Integer, List<Integer>> got = new ConcurrentHashMap<>();
        AtomicInteger suspended = new AtomicInteger();
        DefaultMQPushConsumer consumer = consumer("*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            if (suspended.getAndIncrement() == 0) {
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            }
            for (MessageExt message : messages) {
                int number = Integer.parseInt(message.getKeys().substring(1));
                got.computeIfAbsent(number % 4, key -> new CopyOnWriteArrayList<>()).add(number);
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        await(() -> got.values().stream().mapToInt(List::size).sum() >= 40, got);
        for (Map.Entry<Integer, List<Integer>> each : got.entrySet()) {
            for (int at = 0; at < 10; at++) {
                check(each.getValue().get(at) == each.getKey() + 4 * at, got);
            }
        }
    }

    private static void broadcast() throws Exception {
        DefaultMQProducer producer = producer();
        send(producer, 1);
        List<Set<String>> got = Arrays.asList(ConcurrentHashMap.newKeySet(), ConcurrentHashMap.newKeySet());
        for (Set<String> each : got) {
            DefaultMQPushConsumer consumer = consumer("*");
            consumer.setMessageModel(MessageModel.BROADCASTING);
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(message -> each.add(message.getKeys()));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
        }
        for (int number = 1; number < 20; number++) {
            producer.send(message(number, "x"));
        }
        await(() -> got.get(0).size() == 20 && got.get(1).size() == 20, got);
    }

    private static DefaultLitePullConsumer lite() {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("C_" + name);
        consumer.setNamesrvAddr(nameserver);
        consumer.setInstanceName(name + open.size());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        open.add(consumer::shutdown);
        return consumer;
    }

    private static void litePull() throws Exception {
        send(producer(), 20);
        DefaultLitePullConsumer consumer = lite();
        consumer.subscribe(name, "*");
        consumer.start();
        Set<String> got = new HashSet<>();
        await(() -> {
            consumer.poll(500).forEach(message -> got.add(message.getKeys()));
            return got.size() == 20;
        }, got);
    }

    private static void litePullSeek() throws Exception {
        send(producer(), 40);
        DefaultLitePullConsumer consumer = lite();
        consumer.setAutoCommit(false);
        consumer.start();
        List<MessageQueue> queues = new ArrayList<>(consumer.fetchMessageQueues(name));
        MessageQueue queue = queues.get(0);
        consumer.assign(queues.subList(0, 1));
        consumer.seek(queue, 7);
        List<MessageExt> got = new ArrayList<>();
        await(() -> got.addAll(consumer.poll(500)) && got.size() >= 3, got);
        check(got.get(0).getQueueOffset() == 7, got);
        check(consumer.offsetForTimestamp(queue, System.currentTimeMillis() + 1000) == 10, queue);
        consumer.commitSync();
        await(() -> consumer.committed(queue) == 10, queue);
    }

    // -- later, and again

    private static void delayLevels() throws Exception {
        DefaultMQProducer producer = producer();
        send(producer, 1);
        Map<String, Long> got = new ConcurrentHashMap<>();
        DefaultMQPushConsumer consumer = consumer("late");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> got.put(message.getKeys(), System.currentTimeMillis()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        long[] sent = new long[3];
        for (int level = 1; level <= 2; level++) {
            Message message = message(level, "late");
            message.setDelayTimeLevel(level);
            sent[level] = System.currentTimeMillis();
            producer.send(message);
        }
        await(() -> got.size() == 2, got);
        check(got.get("k1") - sent[1] >= 1_000 && got.get("k2") - sent[2] >= 5_000, got, Arrays.toString(sent));
    }

    private static void retryAndDeadLetter() throws Exception {
        DefaultMQProducer producer = producer();
        producer.send(message(0, "x"));
        List<Integer> times = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer = consumer("*");
        consumer.setMaxReconsumeTimes(2);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> times.add(message.getReconsumeTimes()));
            context.setDelayLevelWhenNextConsume(1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        await(() -> times.size() >= 3, times);
        check(times.equals(Arrays.asList(0, 1, 2)), times);
        DefaultMQPullConsumer puller = puller();
        String broker = puller.fetchSubscribeMessageQueues(name).iterator().next().getBrokerName();
        MessageQueue dead = new MessageQueue("%DLQ%C_" + name, broker, 0);
        await(() -> {
            try {
                return puller.maxOffset(dead) == 1;
            } catch (MQClientException missing) {
                // The topic is made by the last send-back, which is still under way.
                return false;
            }
        }, dead);
    }

    private static void query() throws Exception {
        DefaultMQProducer producer = producer();
        long begin = System.currentTimeMillis() - 1000;
        SendResult sent = producer.send(message(1, "x"));
        long end = begin + 3_600_000;
        check(producer.queryMessage(name, "k1", 10, begin, end).getMessageList().size() == 1, sent);
        check(new String(producer.viewMessage(name, sent.getOffsetMsgId()).getBody()).equals("body 1"), sent);
        check(new String(producer.viewMessage(name, sent.getMsgId()).getBody()).equals("body 1"), sent);
        try {
            producer.queryMessage(name, "none", 10, begin, end);
        } catch (MQClientException missing) {
            check(missing.getResponseCode() == 208, missing);
            return;
        }
        check(false, "found");
    }

    private static void transactions() throws Exception {
        Map<String, Integer> checks = new ConcurrentHashMap<>();
        TransactionMQProducer producer = new TransactionMQProducer("P_" + name);
        producer.setNamesrvAddr(nameserver);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object told) {
                return LocalTransactionState.values()[(Integer) told];
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                checks.merge(message.getKeys(), 1, Integer::sum);
                return message.getKeys().equals("k2")
                    ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
            }
        });
        producer.start();
        open.add(producer::shutdown);
        int[] states = {0, 1, 2, 2};
        for (int number = 0; number < 4; number++) {
            producer.sendMessageInTransaction(message(number, "x"), states[number]);
        }
        Set<String> got = ConcurrentHashMap.newKeySet();
        consume("*", got);
        await(() -> got.size() == 2 && checks.containsKey("k2") && checks.containsKey("k3"), Arrays.asList(got, checks));
        Thread.sleep(500);
        check(got.equals(new HashSet<>(Arrays.asList("k0", "k2"))), got, checks);
    }

    private static void requestReply() throws Exception {
        DefaultMQProducer producer = producer();
        send(producer, 1);
        DefaultMQProducer answering = producer();
        DefaultMQPushConsumer consumer = consumer("ask");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    answering.send(MessageUtil.createReplyMessage(message, ("re:" + new String(message.getBody())).getBytes()));
                } catch (Exception fault) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Message reply = producer.request(new Message(name, "ask", "k", "ping".getBytes()), PATIENCE_S * 1000);
        check(new String(reply.getBody()).equals("re:ping"), reply);
    }

    private static void filterBySql() throws Exception {
        DefaultMQProducer producer = producer();
        send(producer, 1);
        List<String> got = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer = consumer("*");
        consumer.subscribe(name, MessageSelector.bySql("(a BETWEEN 5 AND 16 AND a > 5) AND b IN ('x', 'y') OR c IS NOT NULL"));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> got.add(message.getKeys()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        for (int number = 0; number < 20; number++) {
            Message message = message(number, "sql");
            message.putUserProperty("a", String.valueOf(number));
            message.putUserProperty("b", number % 2 == 0 ? "x" : "z");
            producer.send(message);
        }
        Message last = message(20, "sql");
        last.putUserProperty("c", "1");
        producer.send(last);
        await(() -> got.contains("k20") && got.size() >= 7, got);
        check(new HashSet<>(got).equals(new HashSet<>(Arrays.asList("k6", "k8", "k10", "k12", "k14", "k16", "k20"))), got);
    }

    private static void timer() throws Exception {
        DefaultMQProducer producer = producer();
        send(producer, 1);
        Map<String, Long> got = new ConcurrentHashMap<>();
        DefaultMQPushConsumer consumer = consumer("late");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> got.put(message.getKeys(), System.currentTimeMillis()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        long sent = System.currentTimeMillis();
        Message seconds = message(1, "late");
        seconds.setDelayTimeSec(4);
        Message milliseconds = message(2, "late");
        milliseconds.setDelayTimeMs(3_000);
        Message absolute = message(3, "late");
        absolute.setDeliverTimeMs(sent + 5_000);
        for (Message each : Arrays.asList(seconds, milliseconds, absolute)) {
            producer.send(each);
        }
        await(() -> got.size() == 3, got);
        check(got.get("k1") - sent >= 3_000 && got.get("k2") - sent >= 2_000 && got.get("k3") - sent >= 4_000, got, sent);
    }

    private static void recall() throws Exception {
        DefaultMQProducer producer = producer();
        send(producer, 1);
        List<String> got = new CopyOnWriteArrayList<>();
        consume("late", got);
        Message recalled = message(1, "late");
        recalled.setDelayTimeMs(6_000);
        Message other = message(2, "late");
        other.setDelayTimeMs(8_000);
        SendResult sent = producer.send(recalled);
        producer.send(other);
        producer.recallMessage(name, sent.getRecallHandle());
        await(() -> got.contains("k2"), got);
        check(!got.contains("k1"), got);
    }

    // -- popping

    /** Pops from the broker that has the case's topic, as the proxy does. */
    private static final class Popper {
        private final MQClientAPIExt api;
        private final String broker;
        private final String address;

        Popper() throws Exception {
            ClientConfig config = new ClientConfig();
            config.setInstanceName(name + open.size());
            api = new MQClientAPIExt(config, new NettyClientConfig(), new ClientRemotingProcessor(null), null);
            api.start();
            open.add(api::shutdown);
            api.updateNameServerAddressList(nameserver);
            BrokerData data = api.getTopicRouteInfoFromNameServer(name, 5_000).getBrokerDatas().get(0);
            broker = data.getBrokerName();
            address = data.selectBrokerAddr();
        }

        PopResult pop(int queue, int most, long invisibleMs, long pollMs, boolean inOrder) throws Exception {
            PopMessageRequestHeader header = new PopMessageRequestHeader();
            header.setConsumerGroup("C_" + name);
            header.setTopic(name);
            header.setQueueId(queue);
            header.setMaxMsgNums(most);
            header.setInvisibleTime(invisibleMs);
            header.setPollTime(pollMs);
            header.setBornTime(System.currentTimeMillis());
            header.setInitMode(0);
            header.setExpType("TAG");
            header.setExp("*");
            header.setOrder(inOrder);
            return api.popMessageAsync(address, broker, header, pollMs + 10_000).get();
        }

        private String topic(MessageExt message) {
            return ExtraInfoUtil.getRealTopic(ExtraInfoUtil.split(handle(message)), name, "C_" + name);
        }

        void acknowledge(MessageExt message) throws Exception {
            AckMessageRequestHeader header = new AckMessageRequestHeader();
            header.setConsumerGroup("C_" + name);
            header.setTopic(topic(message));
            header.setQueueId(message.getQueueId());
            header.setOffset(message.getQueueOffset());
            header.setExtraInfo(handle(message));
            check(api.ackMessageAsync(address, header, 10_000).get().getStatus() == AckStatus.OK, message);
        }

        AckResult hide(MessageExt message, long ms) throws Exception {
            ChangeInvisibleTimeRequestHeader header = new ChangeInvisibleTimeRequestHeader();
            header.setConsumerGroup("C_" + name);
            header.setTopic(topic(message));
            header.setQueueId(message.getQueueId());
            header.setOffset(message.getQueueOffset());
            header.setExtraInfo(handle(message));
            header.setInvisibleTime(ms);
            return api.changeInvisibleTimeAsync(address, broker, header, 10_000).get();
        }

        boolean hasMessages(long pollMs) throws Exception {
            NotificationRequestHeader header = new NotificationRequestHeader();
            header.setConsumerGroup("C_" + name);
            header.setTopic(name);
            header.setQueueId(-1);
            header.setPollTime(pollMs);
            header.setBornTime(System.currentTimeMillis());
            return api.notification(address, header, pollMs + 10_000).get();
        }

        /** Pops until so many messages have come; each by its key. */
        Map<String, MessageExt> popAll(int count, long invisibleMs) throws Exception {
            Map<String, MessageExt> found = new TreeMap<>();
            await(() -> {
                PopResult result = pop(-1, 32, invisibleMs, 5_000, false);
                if (result.getPopStatus() == PopStatus.FOUND) {
                    result.getMsgFoundList().forEach(message -> found.put(message.getKeys(), message));
                }
                return found.size() >= count;
            }, found);
            return found;
        }
    }

    private static String handle(MessageExt message) {
        return message.getProperty(MessageConst.PROPERTY_POP_CK);
    }

    private static void popPush() throws Exception {
        DefaultMQProducer producer = producer();
        send(producer, 1);
        DefaultMQAdminExt admin = admin();
        String address = admin.examineTopicRouteInfo(name).getBrokerDatas().get(0).selectBrokerAddr();
        admin.setMessageRequestMode(address, name, "C_" + name, MessageRequestMode.POP, 0, 5_000);
        Map<String, Integer> times = new ConcurrentHashMap<>();
        List<String> twice = new CopyOnWriteArrayList<>();
        Set<String> clients = ConcurrentHashMap.newKeySet();
        for (int number = 0; number < 2; number++) {
            DefaultMQPushConsumer consumer = consumer("*");
            consumer.setClientRebalance(false);
            consumer.setPopInvisibleTime(30_000);
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                MessageExt message = messages.get(0);
                clients.add(consumer.getInstanceName());
                check(handle(message) != null, message);
                if (message.getKeys().equals("k7") && message.getReconsumeTimes() == 0) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                if (times.put(message.getKeys(), message.getReconsumeTimes()) != null) {
                    twice.add(message.getKeys());
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
        }
        await(() -> times.containsKey("k0"), times);
        for (int number = 1; number < 60; number++) {
            producer.send(message(number, "x"));
            Thread.sleep(20);
        }
        await(() -> times.size() == 60, times);
        check(times.get("k7") == 1 && times.get("k8") == 0 && twice.isEmpty(), times, twice);
        check(clients.size() == 2, clients);
    }

    private static void popRequests() throws Exception {
        DefaultMQProducer producer = producer();
        send(producer, 6);
        Popper popper = new Popper();
        check(popper.hasMessages(0), "no notification");
        Map<String, MessageExt> found = popper.popAll(6, 6_000);
        check(!popper.hasMessages(0) && popper.pop(-1, 32, 6_000, 0, false).getPopStatus() == PopStatus.POLLING_NOT_FOUND);
        popper.acknowledge(found.get("k0"));
        List<String> handles = Arrays.asList(handle(found.get("k1")), handle(found.get("k2")));
        AckResult batch = popper.api.batchAckMessageAsync(popper.address, name, "C_" + name, handles, 10_000).get();
        check(batch.getStatus() == AckStatus.OK, batch);
        AckResult hidden = popper.hide(found.get("k3"), 1_000);
        check(hidden.getStatus() == AckStatus.OK && hidden.getExtraInfo() != null, hidden);
        check(popper.hasMessages(15_000), "no notification");
        Map<String, MessageExt> again = popper.popAll(3, 60_000);
        check(again.keySet().equals(new HashSet<>(Arrays.asList("k3", "k4", "k5"))), again.keySet());
        for (MessageExt message : again.values()) {
            check(message.getReconsumeTimes() == 1 && message.getTopic().equals(name), message);
            popper.acknowledge(message);
        }
    }

    private static void popInOrder() throws Exception {
        DefaultMQProducer producer = producer();
        for (int number = 0; number < 6; number++) {
            producer.send(message(number, "x"), (queues, it, key) -> queues.get(0), null);
        }
        Popper popper = new Popper();
        List<MessageExt> first = popper.pop(-1, 2, 4_000, 5_000, true).getMsgFoundList();
        check(first.size() == 2 && first.get(0).getKeys().equals("k0"), first);
        int queue = first.get(0).getQueueId();
        check(popper.pop(queue, 2, 4_000, 0, true).getPopStatus() == PopStatus.POLLING_NOT_FOUND, "not blocked");
        popper.acknowledge(first.get(0));
        List<MessageExt> second = popper.pop(-1, 2, 4_000, 10_000, true).getMsgFoundList();
        check(second.size() == 2 && second.get(0).getKeys().equals("k1"), second);
        check(second.get(0).getReconsumeTimes() == 1 && second.get(1).getReconsumeTimes() == 0, second);
        popper.hide(second.get(0), 1_000);
        popper.acknowledge(second.get(1));
        List<MessageExt> third = popper.pop(-1, 32, 4_000, 10_000, true).getMsgFoundList();
        check(third.size() == 5 && third.get(0).getKeys().equals("k1"), third);
        for (MessageExt message : third) {
            popper.acknowledge(message);
        }
        producer.send(message(6, "x"), (queues, it, key) -> queues.get(0), null);
        List<MessageExt> last = popper.pop(-1, 32, 4_000, 10_000, true).getMsgFoundList();
        check(last.size() == 1 && last.get(0).getKeys().equals("k6"), last);
    }

    private static void popByPriority() throws Exception {
        DefaultMQProducer producer = producer();
        // The first message makes the topic, whose type is changed then.
        producer.send(message(0, "x"));
        DefaultMQAdminExt admin = admin();
        String address = admin.examineTopicRouteInfo(name).getBrokerDatas().get(0).selectBrokerAddr();
        TopicConfig config = new TopicConfig(name, 4, 4);
        config.getAttributes().put("+message.type", "PRIORITY");
        admin.createAndUpdateTopicConfig(address, config);
        Popper popper = new Popper();
        popper.popAll(1, 60_000);
        List<Integer> queues = new ArrayList<>();
        for (int priority : new int[] {1, 3, 0, 9, 2}) {
            Message message = message(priority, "x");
            message.setPriority(priority);
            queues.add(producer.send(message).getMessageQueue().getQueueId());
        }
        check(queues.equals(Arrays.asList(1, 3, 0, 3, 2)), queues);
        Message delayed = message(9, "x");
        delayed.setPriority(9);
        delayed.setDelayTimeLevel(1);
        check(producer.send(delayed).getSendStatus() == SendStatus.SEND_OK);
        List<String> got = new ArrayList<>();
        for (int times = 0; times < 5; times++) {
            for (MessageExt message : popper.pop(-1, 1, 60_000, 5_000, false).getMsgFoundList()) {
                check(message.getKeys().equals("k" + message.getPriority()), message);
                got.add(message.getKeys());
                popper.acknowledge(message);
            }
        }
        check(got.equals(Arrays.asList("k3", "k9", "k2", "k1", "k0")), got);
        MessageExt late = popper.popAll(1, 60_000).get("k9");
        check(late != null && late.getPriority() == -1, late);
    }
}
