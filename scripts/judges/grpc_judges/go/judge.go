// Judge uses a proxy through RocketMQ 5's official Go client, case by case: judge ENDPOINT RUN CASE...
//
// Each case has a topic and a group of its own, grpc-NAME-RUN and grpc-group-NAME-RUN, which must be there.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const (
	patience = 30 * time.Second
	await    = 5 * time.Second
	hidden   = 15 * time.Second
	notFound = 40401
)

var (
	endpoint, topic, group string
	open                   []func() error
)

var cases = map[string]func(){
	"send":       send,
	"burst":      burst,
	"simple":     sendAndReceive,
	"tls":        tls,
	"unknown":    unknown,
	"large":      large,
	"tags":       tags,
	"sql":        sql,
	"fifo":       fifo,
	"delay":      delay,
	"commit":     commit,
	"rollback":   rollback,
	"orphan":     orphan,
	"nack":       nack,
	"redelivery": redelivery,
	"push":       push,
	"push_retry": pushRetry,
	"push_fifo":  pushFifo,
	"dead":       dead,
}

func main() {
	if os.Args[1] == "send" || os.Args[1] == "take" {
		exchange(os.Args[1:])
		return
	}
	endpoint = os.Args[1]
	for _, name := range os.Args[3:] {
		topic, group = "grpc-"+name+"-"+os.Args[2], "grpc-group-"+name+"-"+os.Args[2]
		rmq.EnableSsl = false
		if fault := outcome(name); fault != nil {
			fmt.Printf("case %s failed %s\n", name, strings.ReplaceAll(fmt.Sprint(fault), "\n", " "))
		} else {
			fmt.Printf("case %s passed\n", name)
		}
		for _, each := range open {
			if err := each(); err != nil {
				fmt.Println("close:", err)
			}
		}
		open = nil
	}
}

// outcome runs a case; the fault that ended it, if one did.
func outcome(name string) (fault any) {
	defer func() { fault = recover() }()
	body, isThere := cases[name]
	check(isThere, "is no case")
	body()
	return nil
}

// -- helpers

func check(holds bool, told ...any) {
	if !holds {
		panic(fmt.Sprint(told...))
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func config(group string) *rmq.Config {
	return &rmq.Config{Endpoint: endpoint, ConsumerGroup: group, Credentials: &credentials.SessionCredentials{}}
}

func producer(options ...rmq.ProducerOption) rmq.Producer {
	made, err := rmq.NewProducer(config(group), append(options, rmq.WithTopics(topic))...)
	must(err)
	must(made.Start())
	open = append(open, made.GracefulStop)
	return made
}

func subscribed(from, by string, expression *rmq.FilterExpression) rmq.SimpleConsumer {
	expressions := map[string]*rmq.FilterExpression{from: expression}
	options := []rmq.SimpleConsumerOption{
		rmq.WithSimpleAwaitDuration(await), rmq.WithSimpleSubscriptionExpressions(expressions),
	}
	made, err := rmq.NewSimpleConsumer(config(by), options...)
	must(err)
	must(made.Start())
	open = append(open, made.GracefulStop)
	return made
}

func consumer() rmq.SimpleConsumer {
	return subscribed(topic, group, rmq.SUB_ALL)
}

// pushed are the bodies and attempts that a push consumer has got.
type pushed struct {
	lock sync.Mutex
	got  []string
}

func (all *pushed) seen() []string {
	all.lock.Lock()
	defer all.lock.Unlock()
	return slices.Clone(all.got)
}

// wait waits until there are so many.
func (all *pushed) wait(count int) []string {
	for end := time.Now().Add(patience); len(all.seen()) < count; time.Sleep(20 * time.Millisecond) {
		check(time.Now().Before(end), "not in time: ", all.seen())
	}
	return all.seen()
}

func consume(isDone func(*rmq.MessageView) bool) *pushed {
	all := &pushed{}
	listener := &rmq.FuncMessageListener{Consume: func(message *rmq.MessageView) rmq.ConsumerResult {
		all.lock.Lock()
		all.got = append(all.got, fmt.Sprintf("%s/%d", message.GetBody(), message.GetDeliveryAttempt()))
		all.lock.Unlock()
		if isDone(message) {
			return rmq.SUCCESS
		}
		return rmq.FAILURE
	}}
	made, err := rmq.NewPushConsumer(config(group), rmq.WithPushAwaitDuration(await), rmq.WithPushMessageListener(listener),
		rmq.WithPushSubscriptionExpressions(map[string]*rmq.FilterExpression{topic: rmq.SUB_ALL}))
	must(err)
	must(made.Start())
	open = append(open, made.GracefulStop)
	return all
}

func message(number int) *rmq.Message {
	made := &rmq.Message{Topic: topic, Body: []byte(strconv.Itoa(number))}
	made.SetKeys("k" + strconv.Itoa(number))
	made.AddProperty("number", strconv.Itoa(number))
	return made
}

func store(producer rmq.Producer, message *rmq.Message) *rmq.SendReceipt {
	receipts, err := producer.Send(context.Background(), message)
	must(err)
	return receipts[0]
}

// receive receives what there is.
func receive(consumer rmq.SimpleConsumer, most int32, hidden time.Duration) []*rmq.MessageView {
	found, err := consumer.Receive(context.Background(), most, hidden)
	var status *rmq.ErrRpcStatus
	if errors.As(err, &status) && status.GetCode() == notFound {
		return nil
	}
	must(err)
	return found
}

// take receives and acknowledges messages until there are so many.
func take(consumer rmq.SimpleConsumer, count int, most int32) []*rmq.MessageView {
	got := []*rmq.MessageView{}
	for end := time.Now().Add(patience); len(got) < count && time.Now().Before(end); {
		for _, message := range receive(consumer, most, hidden) {
			must(consumer.Ack(context.Background(), message))
			got = append(got, message)
		}
	}
	return got
}

func next(consumer rmq.SimpleConsumer, hidden time.Duration) *rmq.MessageView {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if found := receive(consumer, 1, hidden); len(found) > 0 {
			return found[0]
		}
	}
	panic("no message in time")
}

func checkNothing(consumer rmq.SimpleConsumer) {
	found := receive(consumer, 32, hidden)
	check(len(found) == 0, "more came: ", len(found))
}

func checkBodies(got []*rmq.MessageView, inOrder bool, wanted ...int) {
	found := []int{}
	for _, message := range got {
		number, err := strconv.Atoi(string(message.GetBody()))
		must(err)
		found = append(found, number)
	}
	if !inOrder {
		slices.Sort(found)
	}
	check(slices.Equal(found, wanted), found)
}

func numbers(count int) []int {
	found := make([]int, count)
	for number := range found {
		found[number] = number
	}
	return found
}

// -- sending and receiving

func send() {
	producer := producer()
	ids := map[string]bool{}
	for number := range 20 {
		ids[store(producer, message(number)).MessageID] = true
	}
	check(len(ids) == 20, ids)
}

// burst sends fifty messages at a time, as fast as it goes.
func burst() {
	producer := producer()
	sent := make(chan error, 50)
	for number := range 3000 {
		producer.SendAsync(context.Background(), message(number),
			func(_ context.Context, _ []*rmq.SendReceipt, err error) { sent <- err })
		if number%50 == 49 {
			for range 50 {
				must(<-sent)
			}
		}
	}
}

func sendAndReceive() {
	producer, consumer := producer(), consumer()
	ids := map[string]bool{}
	for number := range 20 {
		message := message(number)
		message.SetTag("tag")
		ids[store(producer, message).MessageID] = true
	}
	got := take(consumer, 20, 32)
	checkBodies(got, false, numbers(20)...)
	for _, message := range got {
		number := string(message.GetBody())
		check(ids[message.GetMessageId()], "not an id that was sent: ", message.GetMessageId())
		check(slices.Equal(message.GetKeys(), []string{"k" + number}), message.GetKeys())
		check(message.GetProperties()["number"] == number, message.GetProperties())
		check(*message.GetTag() == "tag" && message.GetDeliveryAttempt() == 1, *message.GetTag())
	}
	checkNothing(consumer)
}

func tls() {
	rmq.EnableSsl = true
	sendAndReceive()
}

func unknown() {
	message := message(0)
	producer := producer()
	message.Topic = topic + "-unknown"
	_, err := producer.Send(context.Background(), message)
	check(err != nil, "a topic that is not there took a message")
}

func large() {
	producer, consumer := producer(), consumer()
	// The client itself sends no more than 2 MiB.
	body := make([]byte, 3<<19)
	rand.New(rand.NewSource(1)).Read(body)
	store(producer, &rmq.Message{Topic: topic, Body: body})
	got := take(consumer, 1, 32)
	check(len(got) == 1 && bytes.Equal(got[0].GetBody(), body), "not the body that was sent")
}

func tags() {
	producer, consumer := producer(), subscribed(topic, group, rmq.NewFilterExpression("A || C"))
	wanted := []int{}
	for number := range 30 {
		message := message(number)
		message.SetTag("ABC"[number%3 : number%3+1])
		store(producer, message)
		if number%3 != 1 {
			wanted = append(wanted, number)
		}
	}
	checkBodies(take(consumer, 20, 32), false, wanted...)
	checkNothing(consumer)
}

func sql() {
	expression := rmq.NewFilterExpressionWithType("number BETWEEN 3 AND 6 OR TAGS IN ('x')", rmq.SQL92)
	producer, consumer := producer(), subscribed(topic, group, expression)
	for number := range 10 {
		message := message(number)
		message.SetTag("y")
		if number == 9 {
			message.SetTag("x")
		}
		store(producer, message)
	}
	checkBodies(take(consumer, 5, 32), false, 3, 4, 5, 6, 9)
	checkNothing(consumer)
}

func fifo() {
	producer, consumer := producer(), consumer()
	for number := range 8 {
		message := message(number)
		message.SetMessageGroup("one")
		store(producer, message)
	}
	got := take(consumer, 8, 1)
	checkBodies(got, true, numbers(8)...)
	for _, message := range got {
		check(*message.GetMessageGroup() == "one", *message.GetMessageGroup())
	}
}

func delay() {
	producer, consumer := producer(), consumer()
	began := time.Now()
	message := message(0)
	message.SetDelayTimestamp(began.Add(4 * time.Second))
	store(producer, message)
	checkBodies(take(consumer, 1, 32), true, 0)
	took := time.Since(began)
	check(took > 2900*time.Millisecond && took < 12*time.Second, "it came after ", took)
}

// -- transactions

func transaction(end func(rmq.Transaction) error) rmq.SimpleConsumer {
	checker := &rmq.TransactionChecker{
		Check: func(*rmq.MessageView) rmq.TransactionResolution { return rmq.COMMIT },
	}
	producer, consumer := producer(rmq.WithTransactionChecker(checker)), consumer()
	begun := producer.BeginTransaction()
	_, err := producer.SendWithTransaction(context.Background(), message(0), begun)
	must(err)
	must(end(begun))
	return consumer
}

func commit() {
	consumer := transaction(rmq.Transaction.Commit)
	checkBodies(take(consumer, 1, 32), true, 0)
	checkNothing(consumer)
}

func rollback() {
	checkNothing(transaction(rmq.Transaction.RollBack))
}

func orphan() {
	consumer := transaction(func(rmq.Transaction) error { return nil })
	checkBodies(take(consumer, 1, 32), true, 0)
	checkNothing(consumer)
}

// -- messages that come again

func nack() {
	producer, consumer := producer(), consumer()
	store(producer, message(0))
	first := next(consumer, time.Minute)
	began := time.Now()
	must(consumer.ChangeInvisibleDuration(first, 3*time.Second))
	second := next(consumer, hidden)
	took := time.Since(began)
	check(took > 2*time.Second && took < hidden, "it came again after ", took)
	check(first.GetDeliveryAttempt() == 1 && second.GetDeliveryAttempt() == 2, second.GetDeliveryAttempt())
	check(first.GetMessageId() == second.GetMessageId(), second.GetMessageId())
	must(consumer.Ack(context.Background(), second))
}

func redelivery() {
	producer, consumer := producer(), consumer()
	store(producer, message(0))
	for attempt := int32(1); attempt <= 3; attempt++ {
		got := next(consumer, 10*time.Second).GetDeliveryAttempt()
		check(got == attempt, got)
	}
}

// -- push consumers

func push() {
	producer := producer()
	all := consume(func(*rmq.MessageView) bool { return true })
	wanted := []string{}
	for number := range 20 {
		store(producer, message(number))
		wanted = append(wanted, strconv.Itoa(number)+"/1")
	}
	got := all.wait(20)
	slices.Sort(got)
	slices.Sort(wanted)
	check(slices.Equal(got, wanted), got)
	began := time.Now()
	store(producer, message(20))
	all.wait(21)
	check(time.Since(began) < 2*time.Second, "a long poll was not answered on arrival")
}

func pushRetry() {
	producer := producer()
	all := consume(func(message *rmq.MessageView) bool { return message.GetDeliveryAttempt() > 1 })
	store(producer, message(0))
	all.wait(2)
	time.Sleep(3 * time.Second)
	check(slices.Equal(all.seen(), []string{"0/1", "0/2"}), all.seen())
}

func pushFifo() {
	producer := producer()
	all := consume(func(message *rmq.MessageView) bool {
		return string(message.GetBody()) != "1" || message.GetDeliveryAttempt() > 1
	})
	for number := range 4 {
		message := message(number)
		message.SetMessageGroup("one")
		store(producer, message)
	}
	// This client goes on with what it has received before a message is retried, so the place of "1/2" is its own affair.
	got := all.wait(5)
	first := slices.DeleteFunc(slices.Clone(got), func(each string) bool { return each == "1/2" })
	check(len(got) == 5 && slices.Equal(first, []string{"0/1", "1/1", "2/1", "3/1"}), got)
}

// The group's messages are dead after their second attempt.
func dead() {
	producer := producer()
	all := consume(func(*rmq.MessageView) bool { return false })
	id := store(producer, message(0)).MessageID
	all.wait(2)
	time.Sleep(12 * time.Second)
	check(slices.Equal(all.seen(), []string{"0/1", "0/2"}), all.seen())
	got := take(subscribed("%DLQ%"+group, group+"-letters", rmq.SUB_ALL), 1, 32)
	checkBodies(got, true, 0)
	check(got[0].GetMessageId() == id, got[0].GetMessageId())
}
